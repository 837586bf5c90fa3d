"""The repository speaks of the project alone: it works on any machine, and names none."""

import re

import pytest

from architecture.source import ROOT, repository_files

FOREIGN = {
    "absolute paths of one machine": r"(?<![\w.~$}-])/(work|home|root|Users)/\w",
    "package indexes and their hosts": r"(index-url|find-links|trusted-host)\b|//(files\.)?(pypi|pythonhosted)\.",
}
THIS = "tests/architecture/test_repository.py"


@pytest.mark.parametrize("what", FOREIGN)
def test_repository_speaks_of_the_project_alone(what: str) -> None:
    pattern = re.compile(FOREIGN[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in repository_files()
        if str(path.relative_to(ROOT)) != THIS
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found
