"""Semantics 24: `print` in an actor appears at the client, whole and in order; nothing of ours is printed."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
    import os, signal, sys
    from danaus import Actor, ReplyLost, endpoint, this_host

    class Talker(Actor):
        @endpoint
        def say(self, text, end="\\n"):
            print(text, end=end)
        @endpoint
        def cry(self, text):
            print(text, file=sys.stderr)
        @endpoint
        def write(self, data):
            os.write(1, data)
        @endpoint
        def talk(self, lines):
            for number in range(lines):
                print(f"{number:06d} " + "x" * 93)
            return lines
        @endpoint
        def say_and_die(self):
            print("last words", flush=True)
            print("last cry", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        @endpoint
        def shell(self):
            import subprocess
            subprocess.run(["echo", "from a child"], check=True)

    procs = this_host().spawn_procs({"gpus": 2})
    talker = procs.spawn("talker", Talker)
"""


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(tmp_path: Path, transport: str, body: str) -> "subprocess.CompletedProcess[bytes]":
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(body))
    environ = {**os.environ, "DANAUS_TRANSPORT": transport}
    environ.pop("PYTHONUNBUFFERED", None)  # most users do not set it
    return subprocess.run([sys.executable, script], capture_output=True, timeout=50, check=False, env=environ)


def test_print_in_an_actor_appears_at_the_client(tmp_path: Path, transport: str) -> None:
    done = run(
        tmp_path,
        transport,
        """
        one = talker.slice(gpus=0)
        one.say.call_one("hello").get(30)
        one.cry.call_one("oh no").get(30)
        one.shell.call_one().get(30)
        one.say.call_one("no newline at the end", end="").get(30)
        """,
    )
    assert done.stdout == b"hello\nfrom a child\nno newline at the end"
    assert done.stderr == b"oh no\n"
    assert done.returncode == 0


def test_what_was_printed_before_a_reply_is_there_when_the_program_ends(tmp_path: Path) -> None:
    done = run(tmp_path, "unix", "talker.say.call('x').get(30)")
    assert done.stdout == b"x\nx\n"


def test_bytes_that_are_no_text_pass_through(tmp_path: Path) -> None:
    done = run(tmp_path, "unix", "talker.slice(gpus=0).write.call_one(bytes(range(256)) + b'\\n').get(30)")
    assert done.stdout == bytes(range(256)) + b"\n"


def test_a_flood_loses_nothing_mixes_no_lines_and_holds_up_no_reply(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        flood = talker.talk.call(50_000)
        assert talker.slice(gpus=1).talk.options(timeout_s=40).call_one(0).get(40) == 0
        flood.get(40)
        """,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split(b"\n")
    assert len(lines) == 100_001
    assert {len(line) for line in lines[:-1]} == {100}
    for number in (0, 1, 25_000, 49_999):
        assert lines.count(b"%06d " % number + b"x" * 93) == 2


def test_the_last_words_of_a_proc_arrive(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "unix",
        """
        try:
            talker.slice(gpus=0).say_and_die.call_one().get(30)
        except ReplyLost as error:
            assert "last cry" in str(error)
        """,
    )
    assert done.stdout == b"last words\n"
    assert done.stderr == b"last cry\n"
    assert done.returncode == 0


def test_a_line_appears_while_the_actor_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    body = """
    import sys
    talker.slice(gpus=0).say.call_one("a line").get(30)
    sys.stdin.read()
    """
    script.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(body))
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    with process as running:
        assert running.stdout is not None
        assert running.stdin is not None
        assert running.stdout.readline() == "a line\n"  # else the timeout of the test ends this
        running.stdin.close()
    assert process.returncode == 0
