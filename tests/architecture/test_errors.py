"""Every exception travels: whatever class of danaus.errors is raised far away arrives as itself."""

import inspect
import pickle
import typing
from collections.abc import Mapping, Sequence

import pytest

from danaus import errors

FAILURE = errors.Failure("proc_exited", "trainer", 3, {"gpus": 3}, "killed by SIGKILL", signal="SIGKILL", pid=4711)
SAMPLES: dict[object, object] = {
    str: "trainer.step",
    int: 3,
    float: 2.5,
    errors.Failure: FAILURE,
    Sequence[str]: ("trainer[gpus=0]", "trainer[gpus=1]"),
    Sequence[Mapping[str, int]]: ({"gpus": 2},),
}
EXCEPTIONS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BaseException)]


def build(kind: type[BaseException]) -> BaseException:
    if kind is errors.CallError:
        points = [FrozenPoint(gpus=0), FrozenPoint(gpus=1)]
        return kind("trainer.step.call", {points[0]: errors.Error("lost")}, {points[1]: 7}, ())
    if "__init__" not in vars(kind):
        return kind("what, where and what to do")
    hints = typing.get_type_hints(kind.__init__)
    return kind(*(SAMPLES[hints[name]] for name in parameters(kind)))


def parameters(kind: type[BaseException]) -> list[str]:
    return list(inspect.signature(kind.__init__).parameters)[1:]


class FrozenPoint(dict[str, int]):
    """Stands for a Point, which is a hashable mapping."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_args_are_the_constructor_arguments_so_that_it_survives_pickle(kind: type[BaseException]) -> None:
    error = build(kind)
    if "__init__" in vars(kind):
        assert len(error.args) == len(parameters(kind))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy).keys() == vars(error).keys()


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_every_exception_is_in_the_one_tree_and_says_something(kind: type[BaseException]) -> None:
    assert issubclass(kind, errors.Error)
    assert str(build(kind)).strip()
    assert kind.__doc__


def test_a_failure_prints_as_one_block_and_becomes_plain_types() -> None:
    assert str(FAILURE).splitlines() == ["trainer[gpus=3]: killed by SIGKILL", "  where: pid 4711"]
    assert FAILURE.escalated("client").to_dict()["chain"] == ["client"]
