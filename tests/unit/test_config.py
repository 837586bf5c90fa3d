"""Settings: defaults, the environment, and what is refused."""

import tempfile
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from danaus.config import PREFIX, Settings, process_environment, runtime_parent
from danaus.errors import ConfigError


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environ({}) == Settings()


def test_each_field_is_read_from_its_variable_as_what_it_is() -> None:
    environ = {
        "DANAUS_TRANSPORT": "tcp",
        "DANAUS_CONNECT_TIMEOUT_S": "1.5",
        "DANAUS_STOP_TIMEOUT_S": "0",
        "DANAUS_STDERR_TAIL_LINES": "7",
    }
    settings = Settings.from_environ(environ)
    assert settings == Settings(transport="tcp", connect_timeout_s=1.5, stop_timeout_s=0.0, stderr_tail_lines=7)
    assert isinstance(settings.stderr_tail_lines, int)


def test_every_field_can_be_set_by_a_variable() -> None:
    values = {"str": "tcp", "int": "3", "float": "0.25"}
    for field in fields(Settings):
        text = values[type(field.default).__name__]
        settings = Settings.from_environ({PREFIX + field.name.upper(): text})
        assert str(getattr(settings, field.name)) == text
        assert getattr(settings, field.name) != field.default


def test_variables_of_others_are_no_settings() -> None:
    environ = {"TRANSPORT": "tcp", "danaus_transport": "tcp", "DANAUS_": "x", "DANAUS_NO_SUCH_SETTING": "x"}
    assert Settings.from_environ(environ) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("DANAUS_CONNECT_TIMEOUT_S", "soon", "float"),
        ("DANAUS_CONNECT_TIMEOUT_S", "", "float"),
        ("DANAUS_CONNECT_TIMEOUT_S", "1,5", "float"),
        ("DANAUS_STDERR_TAIL_LINES", "1.5", "int"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_variable(name: str, text: str, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_environ({name: text})
    assert str(caught.value) == f"{name}={text!r} is not a {kind}"


@pytest.mark.parametrize("text", ["", "UNIX", "rdma"])
def test_an_unknown_transport_names_those_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match="use 'unix' or 'tcp'"):
        Settings.from_environ({"DANAUS_TRANSPORT": text})


@pytest.mark.parametrize("text", ["-0.1", "nan", "inf", "-inf"])
def test_a_time_that_cannot_be_waited_for_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="verdict_timeout_s is"):
        Settings.from_environ({"DANAUS_VERDICT_TIMEOUT_S": text})


def test_a_count_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="stderr_tail_lines is -1"):
        Settings(stderr_tail_lines=-1)


def test_a_switch_interval_that_python_would_refuse_in_each_proc_is_refused_here() -> None:
    with pytest.raises(ConfigError, match="switch_interval_s is 0"):
        Settings(switch_interval_s=0.0)


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().transport = "tcp"  # type: ignore[misc]


def test_without_an_argument_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANAUS_STDERR_TAIL_LINES", "33")
    assert Settings.from_environ().stderr_tail_lines == 33


def test_a_child_gets_the_environment_of_the_process_with_changes_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("CHANGED", "before")
    environ = process_environment({"CHANGED": "after", "ADDED": "added"})
    assert (environ["KEPT"], environ["CHANGED"], environ["ADDED"]) == ("kept", "after", "added")
    assert process_environment()["CHANGED"] == "before"


def test_sockets_are_made_in_the_runtime_directory_of_the_user_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        assert runtime_parent() == directory


@pytest.mark.parametrize("unusable", ["", "/no/such/directory"])
def test_sockets_are_made_among_the_temp_files_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, unusable: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", unusable)
    assert runtime_parent() == tempfile.gettempdir()


def test_a_directory_whose_path_leaves_no_room_for_a_socket_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert runtime_parent() == "/tmp"
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ConfigError, match="set XDG_RUNTIME_DIR"):
        runtime_parent()
