"""`endpoint`: makes a method callable from afar, and `Endpoint`, with the ways to call it."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from danaus.errors import ConfigError
from danaus.mesh.value_mesh import ValueMesh
from danaus.runtime.cell import EndpointFunction
from danaus.runtime.checks import check_timeout_s
from danaus.runtime.future import Future

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L")
S = TypeVar("S")

Arguments = tuple[tuple[object, ...], dict[str, object]]
"""Positional and keyword arguments of a call."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What `options` sets for the calls of one endpoint."""

    timeout_s: float | None = None
    return_exceptions: bool = False


class Target(Protocol):
    """The mesh that an endpoint is called on."""

    def call_endpoint(
        self, endpoint: EndpointFunction, arguments: Arguments, options: CallOptions, *, single: bool
    ) -> Future[Any]:
        """Send to every rank and collect the replies."""

    def broadcast_endpoint(
        self, endpoint: EndpointFunction, arguments: Arguments, options: CallOptions
    ) -> Future[None]:
        """Send to every rank; no replies."""


class Endpoint(Generic[P, R, L]):
    """A method of an actor. On a mesh it is called by `call`, `call_one` or `broadcast`; inside the actor, directly."""

    def __init__(self, function: Callable[..., object]) -> None:
        name = getattr(function, "__name__", "")
        if not inspect.isfunction(function):
            raise ConfigError(f"endpoint decorates a method, got {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{name} is a generator; an endpoint returns one value: collect into a list")
        self.endpoint_function = EndpointFunction(name, function, inspect.iscoroutinefunction(function))
        self.__doc__ = function.__doc__
        self.__name__ = name
        self._signature = inspect.signature(function)
        self._simple = _positional_range(self._signature)
        self._target: Target | None = None
        self._options = CallOptions()

    def __get__(self, instance: object, owner: type | None = None) -> "Endpoint[P, R, L]":
        if instance is None:
            return self
        return MethodType(self.endpoint_function.function, instance)  # type: ignore[return-value]

    def __repr__(self) -> str:
        where = "" if self._target is None else f" of {self._target!r}"
        return f"<Endpoint {self.__name__}{self._signature}{where}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> L:
        """Run it here, inside the actor."""
        name = self.__name__
        raise TypeError(
            f"{name} is an endpoint of a mesh: use {name}.call(...), {name}.call_one(...) or {name}.broadcast(...)"
        )

    def bind(self, target: Target) -> "Endpoint[P, R, L]":
        """This endpoint on a mesh."""
        return self._copy(target, self._options)

    def options(self, *, timeout_s: float | None = None, return_exceptions: bool = False) -> "Endpoint[P, R, L]":
        """The same endpoint with options for its calls.

        Args:
            timeout_s: after so long the call fails with `CallTimeout`: withdrawn where it waits, cancelled if it runs.
            return_exceptions: wait for every rank, and put exceptions in place of values.
        """
        check_timeout_s(timeout_s)
        options = replace(self._options, timeout_s=timeout_s, return_exceptions=return_exceptions)
        return self._copy(self._target, options)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """Run on every rank. The future ends with all values, or with the first failure as a `CallError`.

        Raises:
            TypeError: the arguments do not fit the endpoint.
            NotPicklable: an argument cannot travel.
        """
        target = self._bound()
        return target.call_endpoint(self.endpoint_function, self._arguments(args, kwargs), self._options, single=False)

    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run on the only rank of the mesh. The future ends with its value, or with the exception it raised.

        Raises:
            ConfigError: the mesh has more than one rank.
            TypeError: the arguments do not fit the endpoint.
            NotPicklable: an argument cannot travel.
        """
        target = self._bound()
        return target.call_endpoint(self.endpoint_function, self._arguments(args, kwargs), self._options, single=True)

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        """Run on every rank without reply. The future, which may be ignored, ends when the message has left.

        If the endpoint raises, the owner of the mesh is told.
        """
        return self._bound().broadcast_endpoint(self.endpoint_function, self._arguments(args, kwargs), self._options)

    def _copy(self, target: Target | None, options: CallOptions) -> "Endpoint[P, R, L]":
        copy: Endpoint[P, R, L] = object.__new__(Endpoint)
        copy.__dict__.update(self.__dict__)
        copy._target = target
        copy._options = options
        return copy

    def _bound(self) -> Target:
        if self._target is None:
            raise TypeError(f"{self.__name__} is not on a mesh; spawn the actor and call it on what spawn returns")
        return self._target

    def _arguments(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Arguments:
        if kwargs or self._simple is None or not self._simple[0] <= len(args) <= self._simple[1]:
            try:
                self._signature.bind(None, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.__name__}{self._signature}: {error}") from None
        return args, kwargs


def _positional_range(signature: inspect.Signature) -> tuple[int, int] | None:
    """How many positional arguments fit, `self` left out; None if that cannot be told so simply."""
    parameters = list(signature.parameters.values())
    simple = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or any(parameter.kind not in simple for parameter in parameters):
        return None
    needed = sum(parameter.default is inspect.Parameter.empty for parameter in parameters)
    return needed - 1, len(parameters) - 1


@overload
def endpoint(
    method: Callable[Concatenate[S, P], Coroutine[object, object, R]],
) -> Endpoint[P, R, Awaitable[R]]: ...
@overload
def endpoint(method: Callable[Concatenate[S, P], R]) -> Endpoint[P, R, R]: ...
def endpoint(method: Callable[..., object]) -> Endpoint[Any, Any, Any]:
    """Make a method of an `Actor`, plain or `async`, callable from afar."""
    return Endpoint(method)
