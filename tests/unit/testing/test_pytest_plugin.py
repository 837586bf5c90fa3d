"""The plugin in a pytest of its own, so that what is left behind there is not left behind here."""

import subprocess
import sys

import pytest

SUITE = """
import os, pathlib, socket, tempfile
import pytest

kept = []

@pytest.fixture(scope="session")
def shared():
    with tempfile.TemporaryDirectory(prefix="danaus-") as directory, socket.socket():
        yield directory

def test_leaves_a_socket():
    kept.append(socket.socket())

def test_leaves_a_file():
    pathlib.Path(tempfile.gettempdir(), "left").touch()

def test_shares_what_lives_longer(shared, tmp_path):
    (tmp_path / "mine").touch()

def test_shares_it_too(shared):
    assert os.path.dirname(shared) == tempfile.gettempdir() == os.environ["TMPDIR"]

async def test_has_a_loop():
    assert f"DANAUS_LEAK_MARK_{os.getpid()}" in os.environ

@pytest.mark.leaks_allowed("it is what this test is about")
def test_is_allowed_to():
    kept.append(socket.socket())

@pytest.mark.leaks_allowed()
def test_is_allowed_without_a_reason():
    pass

def test_accepts_what_it_made(no_leaks):
    kept.append(socket.socket())
    no_leaks.rebase()
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints about `SUITE`."""
    directory = tmp_path_factory.mktemp("suite")
    (directory / "test_suite.py").write_text(SUITE)
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nleak_grace_s = 0\n")
    command = [sys.executable, "-m", "pytest", "-p", "danaus.testing.pytest_plugin", "-p", "no:cacheprovider", "-rA"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.parametrize("test", ["shares_what_lives_longer", "shares_it_too", "has_a_loop", "is_allowed_to"])
def test_a_clean_test_passes(outcome: str, test: str) -> None:
    assert f"PASSED test_suite.py::test_{test}\n" in outcome
    assert f"ERROR test_suite.py::test_{test} " not in outcome


def test_a_test_may_accept_what_it_left(outcome: str) -> None:
    assert "ERROR test_suite.py::test_accepts" not in outcome


def test_a_test_that_leaves_something_fails_and_says_what(outcome: str) -> None:
    assert "test_suite.py::test_leaves_a_socket left behind:\ndescriptor " in outcome
    assert "test_suite.py::test_leaves_a_file left behind:\nfile " in outcome


def test_leaving_something_needs_a_reason(outcome: str) -> None:
    assert "leaks_allowed needs a reason" in outcome


def test_nothing_else_fails(outcome: str) -> None:
    assert outcome.rstrip().splitlines()[-1].strip("= ").startswith("8 passed, 3 errors in")
