"""The pytest plugin: a test that leaves something behind fails. Switch it on with
`pytest_plugins = ["danaus.testing.pytest_plugin"]` in the topmost conftest.py.

Temp files of the code under test go to a directory of the session's own, so that strangers' files are not blamed on it.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.testing.leaks import LeakCheck

DIRECTORY = pytest.StashKey[Path]()
MARK_PREFIX = "DANAUS_LEAK_MARK_"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("leak_grace_s", "seconds that what a test started may take to go away", default="5")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "leaks_allowed(reason): what this test leaves behind is not looked for")
    directory = tempfile.TemporaryDirectory(prefix="t-")  # short: paths of unix sockets end at 108 bytes
    patch = pytest.MonkeyPatch()
    config.add_cleanup(directory.cleanup)
    config.add_cleanup(patch.undo)
    patch.setenv("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path stays where it was
    patch.setenv("TMPDIR", directory.name)
    patch.setattr(tempfile, "tempdir", directory.name)
    patch.delenv("XDG_RUNTIME_DIR", raising=False)
    patch.setenv(f"{MARK_PREFIX}{os.getpid()}", "1")
    config.stash[DIRECTORY] = Path(directory.name)


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[LeakCheck]:
    """The check of this test. What lived before the test is not counted; `rebase()` accepts what is there now."""
    check = LeakCheck(directory=request.config.stash[DIRECTORY], mark=f"{MARK_PREFIX}{os.getpid()}=1")
    yield check
    allowed = request.node.get_closest_marker("leaks_allowed")
    if allowed is not None:
        if not allowed.args and "reason" not in allowed.kwargs:
            pytest.fail("leaks_allowed needs a reason", pytrace=False)
        return
    leaked = check.compare(float(request.config.getini("leak_grace_s")))
    if leaked:
        pytest.fail("\n".join([f"{request.node.nodeid} left behind:", *leaked]), pytrace=False)
