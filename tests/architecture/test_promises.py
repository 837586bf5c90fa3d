"""docs/semantics.md and the tests say the same."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEMANTICS = (ROOT / "docs" / "semantics.md").read_text()
NUM_PROMISES = 28


def test_every_promise_names_its_tests_or_says_not_yet() -> None:
    found = re.findall(r"(?m)^(\d+)\. ((?:.*\n)(?:[ ]+.*\n)*)", SEMANTICS)
    assert [int(number) for number, _ in found] == list(range(1, NUM_PROMISES + 1))
    for number, text in found:
        assert "`test_" in text or "*Not yet:*" in text, f"promise {number} names no test"


def test_every_test_that_a_promise_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", SEMANTICS))
    files = [*(ROOT / "tests" / "behaviour").glob("test_*.py"), *(ROOT / "tests" / "faults").glob("test_*.py")]
    there = {name for file in files for name in re.findall(r"(?m)^def (test_\w+)", file.read_text())}
    assert named, "docs/semantics.md names no test at all"
    assert named <= there, sorted(named - there)
