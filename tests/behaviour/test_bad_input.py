"""Bad input gets a typed error at the call, that says what, where and what to do; nothing is sent."""

import threading

import pytest

from behaviour.actors import Counter, Echo, Where
from behaviour.conftest import Cluster
from danaus import (
    Actor,
    ConfigError,
    MeshFailed,
    MeshStopped,
    NotPicklable,
    ValueMesh,
    endpoint,
)

TRANSPORTS = ("in-memory", "unix")


class Clashing(Actor):
    @endpoint
    def size(self) -> int:  # type: ignore[override]
        return 1


class Plain:
    pass


class Abstract(Actor):
    @endpoint
    def work(self) -> int:
        return 1

    def inner(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("per_host", "text"),
    [
        ({"gpus": 0}, "gpus"),
        ({"gpus": -1}, "gpus"),
        ({"": 2}, "axis"),
        ({"gpus": 1.5}, "gpus"),
        ({"gpus": "two"}, "gpus"),
        ({3: 2}, "3"),
    ],
)
def test_axes_of_procs_are_checked(cluster: Cluster, per_host: dict[str, int], text: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=text):
        cluster.hosts.spawn_procs(per_host)


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A": 1}, {"A": "x\0y"}, {2: "x"}])
def test_environment_variables_are_checked(cluster: Cluster, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="env"):
        cluster.hosts.spawn_procs(env=env)


def test_a_bootstrap_that_cannot_travel_or_be_called_is_refused(cluster: Cluster) -> None:
    lock = threading.Lock()
    with pytest.raises(NotPicklable, match="bootstrap"):
        cluster.hosts.spawn_procs(bootstrap=lambda: lock.acquire())  # noqa: PLW0108
    with pytest.raises(TypeError, match="bootstrap"):
        cluster.hosts.spawn_procs(bootstrap="not a function")  # type: ignore[arg-type]


def test_selections_are_checked(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"hosts": 2, "gpus": 2})
    echo = procs.spawn("echo", Echo)
    values: ValueMesh[object] = echo.echo.call(1).get(20)
    for mesh in (procs, echo, values):
        with pytest.raises(ConfigError, match="gpu"):
            mesh.slice(gpu=1)
        with pytest.raises((ConfigError, IndexError), match="2"):
            mesh.slice(gpus=2)
        with pytest.raises((ConfigError, IndexError), match="-3"):
            mesh.slice(gpus=-3)
        with pytest.raises(ConfigError):
            mesh.slice(gpus=[])
        with pytest.raises(ConfigError):
            mesh.slice(gpus=slice(1, 1))
        with pytest.raises(ConfigError, match="hosts"):
            mesh.at(gpus=1)
        with pytest.raises(ConfigError):
            mesh.split(gpus={"a": 3, "b": 2})
        with pytest.raises(ConfigError, match="hosts"):
            mesh.rename(gpus="hosts")
    with pytest.raises(ConfigError, match="one point"):
        values.item(gpus=1)


def test_slices_of_two_meshes_cannot_be_joined(cluster: Cluster) -> None:
    one, other = (cluster.hosts.spawn_procs({"gpus": 2}) for _ in range(2))
    with pytest.raises(ConfigError, match="two meshes"):
        one.concat(other, axis="gpus")
    assert len(one.slice(gpus=[0]).concat(one.slice(gpus=[1]), axis="gpus")) == 2


def test_only_actors_can_be_spawned(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    for wrong in (Plain, Plain(), "Echo", Echo()):
        with pytest.raises(TypeError, match=r"subclass of danaus\.Actor"):
            procs.spawn("wrong", wrong)  # type: ignore[arg-type, type-var]
    with pytest.raises(ConfigError, match="size"):
        procs.spawn("clashing", Clashing)


def test_what_is_no_endpoint_is_named_with_those_there_are(cluster: Cluster) -> None:
    actor = cluster.hosts.spawn_procs().spawn("abstract", Abstract)
    with pytest.raises(AttributeError, match=r"Abstract\.wrok does not exist.*work"):
        actor.wrok.call()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"Abstract\.inner is not an endpoint.*work"):
        actor.inner()
    with pytest.raises(TypeError, match=r"work\.call\(\.\.\.\)"):
        actor.work()
    with pytest.raises(TypeError, match="not on a mesh"):
        Abstract.work.call()
    assert "work" in dir(actor)
    assert not hasattr(actor, "nothing")


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "soon"])
def test_a_timeout_is_a_positive_number_of_seconds(cluster: Cluster, timeout_s: float) -> None:
    echo = cluster.hosts.spawn_procs().spawn("echo", Echo)
    with pytest.raises((ConfigError, TypeError), match="timeout_s"):
        echo.echo.options(timeout_s=timeout_s)


def test_get_takes_a_number_of_seconds_that_is_not_negative(cluster: Cluster) -> None:
    echo = cluster.hosts.spawn_procs().spawn("echo", Echo)
    with pytest.raises((ConfigError, TypeError), match="timeout_s"):
        echo.echo.call_one(1).get(-1)
    with pytest.raises(TypeError, match="timeout_s"):
        echo.echo.call_one(1).get("soon")  # type: ignore[arg-type]


def test_stopped_procs_and_actors_refuse_at_once(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    echo, counter = procs.spawn("echo", Echo), procs.spawn("counter", Counter)
    counter.stop().get(20)
    with pytest.raises(MeshStopped, match="counter was stopped"):
        counter.slice(gpus=0).add.call_one(1).get(20)
    assert echo.echo.call(1).get(20).to_list() == [1, 1]
    procs.stop().get(20)
    with pytest.raises(MeshStopped, match="spawn it again"):
        procs.spawn("late", Echo)
    with pytest.raises(MeshStopped):
        echo.slice(gpus=0).echo.call_one(1).get(20)
    with pytest.raises(MeshStopped):
        echo.echo.broadcast(1).get(20)
    procs.stop().get(20)  # what is stopped may be stopped again


def test_a_dead_mesh_refuses_at_once_and_says_why(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    where, echo = procs.spawn("where", Where), procs.spawn("echo", Echo)
    cluster.kill(where.pid.call_one().get(20))
    with pytest.raises(Exception, match="SIGKILL"):
        echo.echo.call_one(1).get(20)
    with pytest.raises(MeshFailed, match="SIGKILL"):
        echo.echo.call_one(1).get(20)
    with pytest.raises(MeshFailed, match="SIGKILL"):
        procs.spawn("late", Echo)


def test_a_name_that_is_no_text_is_refused(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="name"):
        cluster.hosts.spawn_procs(name=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name"):
        cluster.hosts.spawn_procs().spawn(Echo, "echo")  # type: ignore[arg-type, type-var, call-arg]


def test_an_endpoint_decorates_methods_only() -> None:
    with pytest.raises(ConfigError, match="endpoint decorates a method"):
        endpoint(3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="generator"):

        class Streaming(Actor):
            @endpoint
            async def numbers(self):  # type: ignore[no-untyped-def]
                yield 1
