"""Endpoints are typed: a wrong call is an error for mypy, as it is for an IDE."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from danaus import Actor, Future, ValueMesh, endpoint, this_host


class Trainer(Actor):
    def __init__(self, rate: float) -> None:
        self.rate = rate

    @endpoint
    def step(self, count: int, *, scale: float = 1.0) -> float:
        return self.rate * count * scale

    @endpoint
    async def name(self) -> str:
        return "trainer"


async def main() -> None:
    procs = this_host().spawn_procs({{"gpus": 2}})
    trainer = procs.spawn("trainer", Trainer, 0.1)
    {line}
"""

GOOD = [
    "reveal_type(await trainer.slice(gpus=0).step.call_one(1))  # float",
    "reveal_type(trainer.step.call(1, scale=2.0).get())  # danaus.mesh.value_mesh.ValueMesh[float]",
    "reveal_type((await trainer.name.call()).to_list())  # list[str]",
    "reveal_type(trainer.step.options(timeout_s=5).call_one(1))  # danaus.runtime.future.Future[float]",
    "reveal_type(trainer.name.broadcast())  # danaus.runtime.future.Future[None]",
    "reveal_type(trainer.split(gpus=('a', 'b'), a=1).at(a=0, b=1))  # Trainer",
    "reveal_type(await trainer.initialized)  # None",
    "reveal_type(procs.slice(gpus=0).flatten('all'))  # danaus.mesh.proc_mesh.ProcMesh",
]

BAD = [
    "await trainer.step.call_one('x')  # arg-type",
    "await trainer.step.call(1, scale='x')  # arg-type",
    "trainer.step.broadcast()  # call-arg",
    "trainer.step.call(1, speed=2)  # call-arg",
    "procs.spawn('trainer', Trainer, 'fast')  # arg-type",
    "procs.spawn('trainer', Trainer)  # call-arg",
    "trainer.jump.call()  # attr-defined",
    "number: int = await trainer.name.call_one()  # assignment",
]


def mypy(tmp_path: Path, line: str) -> list[str]:
    """What mypy says to the program with `line` in it, one program for each."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(line=line))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", tmp_path / "cache", program],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        cwd=tmp_path,
    )
    assert not done.stderr
    return done.stdout.splitlines()


def test_a_call_has_the_type_of_its_endpoint(tmp_path: Path) -> None:
    said = mypy(tmp_path, "\n    ".join(GOOD))
    types = [line.rpartition('Revealed type is "')[2].rstrip('"') for line in said]
    wanted = [line.rpartition("# ")[2] for line in GOOD]
    assert [each.replace("builtins.", "").replace("program.", "") for each in types] == wanted


def test_a_wrong_call_is_an_error_for_mypy(tmp_path: Path) -> None:
    said = mypy(tmp_path, "\n    ".join(BAD))
    first = PROGRAM.format(line="HERE").splitlines().index("    HERE") + 1
    for offset, line in enumerate(BAD):
        code = line.rpartition("# ")[2]
        assert any(f"program.py:{first + offset}: error" in each and f"[{code}]" in each for each in said), (line, said)
