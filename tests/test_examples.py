"""Every example runs as its reader would run it, and says itself whether the result is right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TIMEOUT_S = {"ddp_digits.py": 240}  # seconds where half a minute is not enough; the slowest machines have one core


def run(example: str) -> str:
    """What the example prints."""
    timeout_s = TIMEOUT_S.get(example, 60)
    command = [sys.executable, str(EXAMPLES / example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.timeout(80)
@pytest.mark.parametrize("example", sorted({path.name for path in EXAMPLES.glob("*.py")} - {"ddp_digits.py"}))
def test_example_runs(example: str) -> None:
    run(example)


@pytest.mark.timeout(260)
def test_four_procs_train_on_real_digits_as_one_does() -> None:
    *lines, last = run("ddp_digits.py").splitlines()
    result = json.loads(last)
    assert result.keys() == {"test_accuracy", "procs", "seconds"}
    assert result["test_accuracy"] >= 0.97
    assert result["procs"] == 4
    assert not [line for line in lines if line.startswith("{")]
    assert sum("accuracy" in line for line in lines) == 12


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_is_short_enough_to_read(example: str) -> None:
    limit = 120 if example == "ddp_digits.py" else 80
    assert len((EXAMPLES / example).read_text(encoding="utf-8").splitlines()) < limit
