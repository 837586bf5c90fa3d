"""The layers, checked here too, so that whoever runs only the tests sees them."""

import subprocess
import sys
from pathlib import Path

from architecture.source import ROOT


def test_imports_point_down() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
