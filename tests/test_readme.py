"""The first program a reader sees does what the README says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_program_in_the_readme_prints_what_its_comments_say(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text(program, encoding="utf-8")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [*(f"{{'gpus': {gpu}}} 11" for gpu in range(4)), "16"]
    assert run.stderr == ""
