"""How values travel: C pickle where it can, cloudpickle where it must, large buffers out of band, code once.

Functions and classes of the user's script (`__main__`) go by value. Each is pickled once, named by a digest, sent to a
peer once ahead of the first message that needs it, and referred to by that name from then on.
"""

import hashlib
import io
import pickle
import sys
import threading
import weakref
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import ClassVar

from danaus.errors import NotPicklable
from danaus.protocol.frame import Bytes

_PROTOCOL = 5
_IN_BAND_BYTES = 16 * 1024
_MAX_BUFFERS = 4096
_MAX_SEARCH_DEPTH = 6
_UNNAMED_SOURCE = "<dynamic-code>"
_CODE_KEY = "danaus-code"


@dataclass(frozen=True, slots=True)
class Pickled:
    """A value ready to travel."""

    payload: bytes
    buffers: Sequence[Bytes] = ()
    code: Mapping[str, bytes] | None = None
    """Definitions the payload refers to, by id."""

    @property
    def code_ids(self) -> tuple[str, ...]:
        """Ids of the definitions, for the header."""
        return tuple(self.code) if self.code else ()


class CodeBook:
    """Code that this process has sent or received by value. Knows each definition by its id, and each object's id."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._definitions: dict[str, bytes] = {}
        self._objects: dict[str, object] = {}
        self._ids: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()

    def learn(self, code_id: str, definition: bytes) -> None:
        """Keep a definition that a peer sent; it is unpickled only when something refers to it."""
        self._definitions.setdefault(code_id, definition)

    def find(self, code_id: str) -> object:
        """The object behind `code_id`."""
        with self._lock:
            if code_id not in self._objects:
                definition = self._definitions.get(code_id)
                if definition is None:
                    raise pickle.UnpicklingError(f"code {code_id} was never received")
                found = pickle.loads(definition)
                self._objects[code_id] = found
                self._ids[found] = code_id
            return self._objects[code_id]

    def name(self, value: object, *, fresh: bool) -> tuple[str, bytes] | None:
        """Id and definition of `value`, if it is code that goes by value under a name of its own.

        `fresh` looks again whether the definition, or a global it uses, changed since it was first sent.
        """
        with self._lock:
            code_id = self._ids.get(value)
            if code_id is not None and not (fresh and _is_of_script(value)):
                return code_id, self._definitions[code_id]
            if code_id is None and not _is_of_script(value):
                return None
            definition = _dump_by_value(value, lambda part: None, None)
            code_id = hashlib.sha256(definition).hexdigest()[:24]
            self._definitions[code_id] = definition
            self._objects[code_id] = value
            self._ids[value] = code_id
            return code_id, definition

    def dumps(self, value: object, *, what: str) -> Pickled:
        """Pickle `value`. `what` names it in the error.

        Raises:
            NotPicklable: with the path to the part that cannot travel.
        """
        try:
            return self._dumps(value, fresh_code=False)
        except Exception as error:
            path, reason = self._blame(value, error)
            raise NotPicklable(what + (f" at {path}" if path else ""), reason) from error

    def dumps_call(
        self, function: object, args: Sequence[object], kwargs: Mapping[str, object], *, what: str
    ) -> Pickled:
        """Pickle `(function, args, kwargs)`, looking whether code of the script has changed since it was sent.

        Raises:
            NotPicklable: with the path to the part that cannot travel.
        """
        try:
            return self._dumps((function, args, kwargs), fresh_code=True)
        except Exception as error:
            raise self._blame_call(function, args, kwargs, what, error) from error

    def dumps_arguments(self, args: Sequence[object], kwargs: Mapping[str, object], *, what: str) -> Pickled:
        """Pickle `(args, kwargs)`.

        Raises:
            NotPicklable: with the path to the part that cannot travel.
        """
        try:
            return self._dumps((args, kwargs), fresh_code=False)
        except Exception as error:
            raise self._blame_call(None, args, kwargs, what, error) from error

    def loads(self, payload: Bytes, buffers: Sequence[Bytes], code_ids: Sequence[str]) -> object:
        """The value. Whatever its unpickling raises comes through."""
        if not code_ids:
            return pickle.loads(payload, buffers=buffers)
        return _CodeUnpickler(payload, buffers, self.find).load()

    def loads_call(
        self, payload: Bytes, code_ids: Sequence[str], buffers: Sequence[Bytes] = ()
    ) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
        """Function, args and kwargs from `dumps_call`."""
        return self.loads(payload, buffers, code_ids)  # type: ignore[return-value]

    def _dumps(self, value: object, fresh_code: bool) -> Pickled:
        views: list[pickle.PickleBuffer] = []
        try:
            payload = pickle.dumps(value, _PROTOCOL, buffer_callback=views.append)
        except Exception:
            payload = b"__main__"
        if not views and b"__main__" not in payload:
            return Pickled(payload)
        return self._dumps_with_buffers_or_code(value, fresh_code)

    def _dumps_with_buffers_or_code(self, value: object, fresh_code: bool) -> Pickled:
        buffers: list[pickle.PickleBuffer] = []

        def in_band(buffer: pickle.PickleBuffer) -> bool:
            if len(buffers) >= _MAX_BUFFERS or buffer.raw().nbytes < _IN_BAND_BYTES:
                return True
            buffers.append(buffer)
            return False

        try:
            payload = pickle.dumps(value, _PROTOCOL, buffer_callback=in_band)
        except Exception:
            payload = b"__main__"
        if b"__main__" not in payload:
            return Pickled(payload, [buffer.raw() for buffer in buffers])
        buffers.clear()
        used: dict[str, bytes] = {}

        def name(part: object) -> tuple[str, str] | None:
            found = self.name(part, fresh=fresh_code)
            if found is None:
                return None
            used[found[0]] = found[1]
            return _CODE_KEY, found[0]

        payload = _dump_by_value(value, name, in_band)
        return Pickled(payload, [buffer.raw() for buffer in buffers], used or None)

    def _blame_call(
        self, function: object, args: Sequence[object], kwargs: Mapping[str, object], what: str, error: Exception
    ) -> NotPicklable:
        named = [(what, function)]
        named += [(f"argument {place} of {what}", value) for place, value in enumerate(args, 1)]
        named += [(f"argument {name!r} of {what}", value) for name, value in kwargs.items()]
        for name, value in named:
            cause = self._trouble(value)
            if cause is not None:
                path, reason = self._blame(value, cause)
                return NotPicklable(name + (f" at {path}" if path else ""), reason)
        return NotPicklable(f"the arguments of {what} together", _reason(error))

    def _blame(self, value: object, error: Exception) -> tuple[str, str]:
        """Path to the deepest part of `value` that cannot be pickled, and what its pickling raises."""
        path = ""
        for _ in range(_MAX_SEARCH_DEPTH):
            for step, part in _parts(value):
                cause = self._trouble(part)
                if cause is not None:
                    path, value, error = path + step, part, cause
                    break
            else:
                break
        return path, _reason(error)

    def _trouble(self, value: object) -> Exception | None:
        try:
            self._dumps(value, fresh_code=False)
        except Exception as error:
            return error
        return None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _parts(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", part) for index, part in enumerate(value)]
    if isinstance(value, FunctionType) and value.__closure__:
        names = value.__code__.co_freevars
        return [(f".<closure {name}>", cell.cell_contents) for name, cell in zip(names, value.__closure__, strict=True)]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, type):
        return [(f".{name}", part) for name, part in attributes.items()]
    return []


def _is_of_script(value: object) -> bool:
    """Whether `value` is a function or class that `__main__` holds under its own name."""
    if not isinstance(value, type | FunctionType) or value.__module__ != "__main__":
        return False
    found: object = sys.modules.get("__main__")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _dump_by_value(
    value: object,
    name: Callable[[object], tuple[str, str] | None],
    in_band: Callable[[pickle.PickleBuffer], bool] | None,
) -> bytes:
    import cloudpickle

    class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)

        def persistent_id(self, part: object) -> tuple[str, str] | None:
            return name(part) if isinstance(part, type | FunctionType) else None

    with io.BytesIO() as file:
        CodePickler(file, protocol=_PROTOCOL, buffer_callback=in_band).dump(value)
        return file.getvalue()


def _reduce_code(code: CodeType) -> tuple[object, ...]:
    """As cloudpickle does it, but with the file name, so that tracebacks and debuggers show the source."""
    import cloudpickle

    make, arguments, *rest = cloudpickle.Pickler.dispatch_table[CodeType](code)
    kept = tuple(code.co_filename if part == _UNNAMED_SOURCE else part for part in arguments)
    return make, kept, *rest


class _CodeUnpickler(pickle.Unpickler):
    def __init__(self, payload: Bytes, buffers: Sequence[Bytes], find: Callable[[str], object]) -> None:
        super().__init__(io.BytesIO(payload), buffers=buffers)
        self._find = find

    def persistent_load(self, key: object) -> object:
        if isinstance(key, tuple) and len(key) == 2 and key[0] == _CODE_KEY:
            return self._find(key[1])
        raise pickle.UnpicklingError(f"a reference of unknown kind: {key!r}")
