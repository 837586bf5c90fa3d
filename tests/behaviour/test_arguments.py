"""Semantics 4 and 5: arguments are checked here and travel by pickle; what cannot travel fails its own call alone."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from behaviour.conftest import Cluster
from danaus import Actor, ActorFailed, NotPicklable, endpoint


class Box(Actor):
    """Keeps and gives back."""

    def __init__(self, kept: object = None, *, label: str = "box") -> None:
        self.kept = kept
        self.label = label

    @endpoint
    def put(self, value: object, *, twice: bool = False) -> object:
        self.kept = (value, value) if twice else value
        return self.kept

    @endpoint
    def get(self) -> object:
        return self.kept

    @endpoint
    def lock(self) -> object:
        return {"lock": threading.Lock()}

    @endpoint
    def trouble(self, kind: str) -> None:
        if kind == "plain":
            raise KeyError("no such key")
        if kind == "unpicklable":
            raise Unpicklable(threading.Lock())
        raise Unloadable("cannot be rebuilt")

    @endpoint
    def result(self) -> object:
        return BreaksThere()

    @endpoint
    def double(self, array: object) -> object:
        array *= 2  # type: ignore[operator]
        return array


class Unpicklable(Exception):
    def __init__(self, lock: object) -> None:
        super().__init__("it holds a lock")
        self.lock = lock


class Unloadable(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return refuse, ()


class BreaksThere:
    def __reduce__(self) -> tuple[object, ...]:
        return refuse, ()


def refuse() -> None:
    raise RuntimeError("no")


class Tree:
    def __init__(self, leaf: object) -> None:
        self.left = {"leaf": leaf}


def test_arguments_are_bound_to_the_signature_before_anything_is_sent(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    for call in (box.put.call, box.put.call_one, box.put.broadcast):
        for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"thrice": True}), ((1,), {"value": 2})):
            with pytest.raises(TypeError, match="put"):
                call(*args, **kwargs)
    assert box.get.call_one().get(20) is None


def test_constructor_arguments_are_bound_before_anything_is_sent(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    with pytest.raises(TypeError, match="Box"):
        procs.spawn("box", Box, 1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Box"):
        procs.spawn("box", Box, colour="red")  # type: ignore[call-arg]


def test_options_never_mix_with_arguments(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box, label="timeout_s")
    assert box.put.options(timeout_s=20).call_one(1, twice=True).get(20) == (1, 1)
    with pytest.raises(TypeError, match="timeout_s"):
        box.put.call_one(1, timeout_s=5)  # type: ignore[call-arg]


def test_what_cannot_be_pickled_fails_at_the_call_and_is_named(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    with pytest.raises(NotPicklable) as caught:
        box.put.call_one([1, Tree(threading.Lock())])
    assert caught.value.path == "argument 1 of box.put at [1].left['leaf']"
    with pytest.raises(NotPicklable, match=r"argument 'twice' of box\.put cannot be pickled: TypeError"):
        box.put.call_one(1, twice=threading.Lock())  # type: ignore[arg-type]
    assert box.put.call_one("fine").get(20) == "fine"


def test_an_argument_that_cannot_be_rebuilt_fails_that_call_alone(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    with pytest.raises(NotPicklable, match="RuntimeError: no"):
        box.put.call_one(BreaksThere()).get(20)
    assert box.put.call_one("fine").get(20) == "fine"


def test_a_constructor_argument_that_cannot_be_pickled_fails_at_spawn(cluster: Cluster) -> None:
    with pytest.raises(NotPicklable, match="argument 1 of Box"):
        cluster.hosts.spawn_procs().spawn("box", Box, threading.Lock())


def test_a_result_that_cannot_be_pickled_reaches_the_caller_as_an_error_that_names_it(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    with pytest.raises(NotPicklable, match=r"result of box.lock.*\['lock'\]"):
        box.lock.call_one().get(20)
    assert box.put.call_one("fine").get(20) == "fine"


def test_a_result_that_cannot_be_rebuilt_here_fails_that_call_alone(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    with pytest.raises(NotPicklable, match=r"result of box.result.*RuntimeError: no"):
        box.result.call_one().get(20)
    assert box.put.call_one("fine").get(20) == "fine"


@pytest.mark.parametrize("kind", ["unpicklable", "unloadable"])
def test_an_exception_that_cannot_travel_reaches_the_caller_as_type_text_and_traceback(
    cluster: Cluster, kind: str
) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    with pytest.raises(ActorFailed) as caught:
        box.trouble.call_one(kind).get(20)
    assert caught.value.type_name == ("Unpicklable" if kind == "unpicklable" else "Unloadable")
    assert caught.value.text in ("it holds a lock", "cannot be rebuilt")
    assert "in trouble" in caught.value.traceback
    assert "danaus/runtime" not in caught.value.traceback
    assert box.put.call_one("fine").get(20) == "fine"


def test_what_is_sent_is_what_was_there_at_the_call(cluster: Cluster) -> None:
    box = cluster.hosts.spawn_procs().spawn("box", Box)
    value = [1, 2, 3]
    data = bytearray(b"a" * 3_000_000)
    first, second = box.put.call_one(value), box.put.call_one(data)
    value.append(4)
    data[:] = b"b" * 3_000_000
    assert first.get(20) == [1, 2, 3]
    assert second.get(20) == bytearray(b"a" * 3_000_000)


@pytest.mark.parametrize("num_items", [10, 1_000_000])
def test_received_arrays_are_writable_and_the_receivers_own(cluster: Cluster, num_items: int) -> None:
    import numpy as np

    boxes = cluster.hosts.spawn_procs({"gpus": 2}).spawn("box", Box)
    array = np.ones(num_items, dtype=np.float32)
    doubled = boxes.double.call(array).get(20).to_list()
    for each in doubled:
        each[0] = 7  # ours to change as well
        assert each.shape == (num_items,)
        assert (each[1:] == 2).all()
    assert (array == 1).all()
    assert not np.shares_memory(doubled[0], doubled[1])


def test_within_one_process_arguments_are_copies_too(cluster: Cluster) -> None:
    from danaus import this_proc

    box = this_proc().spawn("box", Box)
    value = [1]
    assert box.put.call_one(value).get(20) is not value
    value.append(2)
    assert box.get.call_one().get(20) == [1]
    box.stop().get(20)


SCRIPT = """
    from danaus import Actor, endpoint, this_host
    from danaus.mesh.client import current_proc

    RATE = 3

    class Point:
        def __init__(self, x):
            self.x = x
        def __eq__(self, other):
            return type(other) is Point and other.x == self.x

    def scale(point):
        return Point(point.x * RATE)

    class Scaler(Actor):
        def __init__(self, function):
            self.function = function
        @endpoint
        def scale(self, point):
            return self.function(point)
        @endpoint
        def fail(self):
            raise LookupError(f"not by {RATE}")

    def main():
        scaler = this_host().spawn_procs({"gpus": 2}).spawn("scaler", Scaler, scale)
        assert scaler.scale.call(Point(2)).get(30).to_list() == [Point(6), Point(6)]
        factor = 5
        assert scaler.scale.call(Point(1)).get(30).to_list() == [Point(3), Point(3)]
        doubler = this_host().spawn_procs().spawn("doubler", Scaler, lambda point: Point(point.x * factor))
        assert doubler.scale.call_one(Point(2)).get(30) == Point(10)
        try:
            scaler.slice(gpus=0).fail.call_one().get(30)
        except LookupError as error:
            assert __file__ in str(error.__cause__), error.__cause__  # the traceback shows the script's own lines
            assert "not by {RATE}" in str(error.__cause__)

        sent = []
        for link in current_proc().links:
            real = link.send
            def send(message, payload=b"", buffers=(), code=None, real=real):
                sent.append(len(payload))
                return real(message, payload, buffers, code)
            link.send = send
        for _ in range(5):
            scaler.scale.call(Point(2)).get(30)
        assert len(sent) == 10
        assert max(sent) < 200, sent  # the classes are not in them
        print("done")

    main()
"""


def test_code_of_a_script_travels_by_value_and_once_to_each_proc(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
