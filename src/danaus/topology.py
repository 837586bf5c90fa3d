"""Named axes: `Extent`, `Point` and `Region`.

Pure rank arithmetic. Which proc or actor a rank stands for is decided in runtime and mesh.
"""

import math
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TypeAlias, final

from danaus.errors import ConfigError

Selector: TypeAlias = int | slice | list[int] | tuple[int, ...] | range
"""What `slice()` takes for an axis: an index drops the axis; a slice or several indexes keep it, in their order."""

Split: TypeAlias = Mapping[str, int] | Sequence[str] | int
"""What `split()` takes: new axes with sizes, names of new axes, or the size of one of those names."""

_MAX_POINTS = 2**32  # a rank travels as four bytes


@final
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Extent(Mapping[str, int]):
    """Ordered axes and their sizes. Equal extents have the same axes in the same order; a dict compares unordered."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    num_points: int
    _strides: tuple[int, ...]

    def __init__(self, axes: Mapping[str, int]) -> None:
        if not isinstance(axes, Mapping):
            raise ConfigError(f"an extent is made of a mapping such as {{'gpus': 4}}, not of {axes!r}")
        self._fill(*_checked(axes.items()))

    @classmethod
    def _of(cls, axes: Iterable[str], sizes: Iterable[int]) -> "Extent":
        extent = object.__new__(cls)
        extent._fill(tuple(axes), tuple(sizes))
        return extent

    def _fill(self, axes: tuple[str, ...], sizes: tuple[int, ...]) -> None:
        *strides, num_points = accumulate(reversed(sizes), operator.mul, initial=1)
        put = object.__setattr__
        put(self, "axes", axes)
        put(self, "sizes", sizes)
        put(self, "num_points", num_points)
        put(self, "_strides", tuple(reversed(strides)))

    @property
    def region(self) -> "Region":
        """All of this extent."""
        return _regular(self, self, offset=0, strides=self._strides)

    def point(self, rank: int) -> "Point":
        """The point with this row-major rank; IndexError if there is none."""
        return Point(self, rank)

    def points(self) -> Iterator["Point"]:
        """Every point, in rank order."""
        return (Point(self, rank) for rank in range(self.num_points))

    def rank_of(self, /, **coords: int) -> int:
        """The rank of the point at these coordinates, one for each axis; negative ones count from the end."""
        _check_names(self, coords, complete=True)
        axes = zip(self.axes, self.sizes, self._strides, strict=True)
        return sum(_index(axis, size, coords[axis]) * stride for axis, size, stride in axes)

    def concat(self, other: "Extent") -> "Extent":
        """The axes of this extent followed by those of `other`."""
        clash = [axis for axis in self.axes if axis in other.axes]
        if clash:
            raise ConfigError(f"both extents have the axes {', '.join(clash)}; rename them in one of the two")
        return Extent._of(*_checked([*self.items(), *other.items()]))

    def to_wire(self) -> tuple[str | int, ...]:
        """Axis, size, axis, size, ...: what `from_wire` takes."""
        return tuple(chain.from_iterable(zip(self.axes, self.sizes, strict=True)))

    @classmethod
    def from_wire(cls, wire: object) -> "Extent":
        """The extent `to_wire` described, checked: ConfigError if no extent could have."""
        if not isinstance(wire, tuple | list) or len(wire) % 2:
            raise ConfigError(f"malformed extent {wire!r:.80}: expected axis, size, axis, size, ...")
        return cls._of(*_checked(zip(wire[::2], wire[1::2], strict=True)))

    def __getitem__(self, axis: str) -> int:
        return self.sizes[_position(self, axis)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.axes)

    def __len__(self) -> int:
        return len(self.axes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Extent):
            return self.axes == other.axes and self.sizes == other.sizes
        return dict(self) == other if isinstance(other, dict) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.axes, self.sizes))

    def __reduce__(self) -> tuple[Callable[[object], "Extent"], tuple[object]]:
        return Extent.from_wire, (self.to_wire(),)

    def __repr__(self) -> str:
        return f"Extent({dict(self)})"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Point(Mapping[str, int]):
    """One coordinate of an extent: axis -> index. Equal points have the same rank in equal extents."""

    extent: Extent
    rank: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.extent.num_points:
            raise IndexError(f"rank {self.rank} is out of range for an extent of {self.extent.num_points} points")

    def size(self, axis: str) -> int:
        """The size of an axis of the extent."""
        return self.extent[axis]

    def __getitem__(self, axis: str) -> int:
        at = _position(self.extent, axis)
        return self.rank // self.extent._strides[at] % self.extent.sizes[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self.extent.axes)

    def __len__(self) -> int:
        return len(self.extent.axes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Point):
            return self.rank == other.rank and self.extent == other.extent
        return dict(self) == other if isinstance(other, dict) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.rank, self.extent.sizes))

    def __reduce__(self) -> tuple[type["Point"], tuple[Extent, int]]:
        return Point, (self.extent, self.rank)

    def __str__(self) -> str:
        return ", ".join(f"{axis}={index}" for axis, index in self.items())

    def __repr__(self) -> str:
        return f"Point({', '.join(f'{axis}={index}/{self.size(axis)}' for axis, index in self.items())})"


@final
@dataclass(frozen=True, slots=True, repr=False)
class Region:
    """An ordered selection of distinct ranks of `base`, shaped as an extent of its own.

    A regular one is an offset and a stride for each axis, of any size; others hold a table of their ranks.
    The form is canonical, so equal regions select the same ranks, in the same order and shape, of equal bases.
    """

    base: Extent
    extent: Extent
    # A regular region has no table. It is nested: each stride is longer than all that shorter ones reach together.
    _offset: int
    _strides: tuple[int, ...]
    _table: tuple[int, ...] | None
    _ranks: Sequence[int] | None = field(default=None, compare=False)
    _positions: dict[int, int] | None = field(default=None, compare=False)

    @property
    def sizes(self) -> dict[str, int]:
        """Axis -> size of the region's own extent."""
        return dict(self.extent)

    @property
    def is_whole(self) -> bool:
        """Whether this is every rank of the base in rank order, in whatever shape."""
        return len(self) == self.base.num_points and self.ranks() == range(len(self))

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """How many points there are in all, along one axis, or in the product of several axes."""
        if axis is None:
            return self.extent.num_points
        names = (axis,) if isinstance(axis, str) else axis
        _check_names(self.extent, names)
        return math.prod(self.extent[name] for name in names)

    def ranks(self) -> Sequence[int]:
        """The base ranks in the region's order: a range if they are evenly spaced, else a tuple."""
        if listed := self._table or self._ranks:
            return listed
        merged: list[tuple[int, int]] = []  # (size, stride) of runs of axes that walk on as one
        for size, stride in zip(self.extent.sizes, self._strides, strict=True):
            if merged and merged[-1][1] == size * stride:
                merged[-1] = merged[-1][0] * size, stride
            elif size > 1:
                merged.append((size, stride))
        if len(merged) <= 1:
            size, stride = merged[0] if merged else (1, 1)
            return range(self._offset, self._offset + size * stride, stride)
        ranks = [self._offset]
        for size, stride in merged:
            ranks = [rank + step for rank in ranks for step in range(0, size * stride, stride)]
        listed = tuple(ranks)
        object.__setattr__(self, "_ranks", listed)
        return listed

    def rank_at(self, index: int) -> int:
        """The base rank of the region's point number `index`."""
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is out of range for a region of {len(self)} points")
        if self._table is not None:
            return self._table[index]
        axes = zip(self.extent.sizes, self.extent._strides, self._strides, strict=True)
        return self._offset + sum(index // inner % size * stride for size, inner, stride in axes)

    def index_of(self, rank: int) -> int:
        """The number of the region's point that has this base rank, the inverse of `rank_at`."""
        index = self._find(rank)
        if index is None:
            raise ConfigError(f"rank {rank} is not in {self!r}")
        return index

    def _find(self, rank: int) -> int | None:
        if self._table is not None:
            positions = self._positions or {rank: at for at, rank in enumerate(self._table)}
            object.__setattr__(self, "_positions", positions)
            return positions.get(rank)
        axes = list(zip(self._strides, self.extent.sizes, self.extent._strides, strict=True))
        axes.sort(key=lambda axis: -abs(axis[0]))
        rest = rank - self._offset - sum((size - 1) * stride for stride, size, _ in axes if stride < 0)
        found = 0
        for stride, size, inner in axes:  # longest first: only one index leaves a rest that shorter strides can reach
            step, rest = divmod(rest, abs(stride)) if stride else (0, rest)
            if not 0 <= step < size:
                return None
            found += (step if stride >= 0 else size - 1 - step) * inner
        return found if rest == 0 else None

    def points(self) -> Iterator[Point]:
        """The points of the region's own extent, in the order of `ranks()`."""
        return self.extent.points()

    def slice(self, /, **selectors: Selector) -> "Region":
        """The part these selectors choose: an index drops its axis, a slice or several indexes keep it.

        Negative indexes count from the end; a slice is clamped as for a list, an index out of range is an IndexError.
        """
        own = self.extent
        _check_names(own, selectors)
        axes, sizes, picks = [], [], []
        for axis, size in zip(own.axes, own.sizes, strict=True):
            pick = _pick(axis, size, selectors[axis]) if axis in selectors else range(size)
            if isinstance(pick, int):
                pick = range(pick, pick + 1)
            else:
                axes.append(axis)
                sizes.append(len(pick))
            picks.append(pick)
        extent = Extent._of(axes, sizes)
        even = [pick for pick in picks if isinstance(pick, range)]
        if self._table is None and len(even) == len(picks):
            walks = list(zip(own.axes, even, self._strides, strict=True))
            offset = self._offset + sum([pick.start * stride for _, pick, stride in walks])
            strides = [pick.step * stride for axis, pick, stride in walks if axis in axes]
            return _regular(self.base, extent, offset=offset, strides=strides)
        chosen = [0]
        for size, pick in zip(own.sizes, picks, strict=True):
            chosen = [outer * size + inner for outer in chosen for inner in pick]
        ranks = self.ranks()
        return _of_ranks(self.base, extent, [ranks[index] for index in chosen])

    def at(self, /, **coords: int) -> "Region":
        """The one point at these coordinates, without axes."""
        _check_names(self.extent, coords, complete=True)
        return self.slice(**{axis: _index(axis, self.extent[axis], index) for axis, index in coords.items()})

    def split(self, /, **into: Split) -> "Region":
        """The same points with an axis made into several, the last of which walks fastest.

        `split(gpus={"dp": 2, "tp": 4})`, or `split(gpus=("dp", "tp"), tp=4)`, which works out one missing size.
        """
        known = {name: size for name, size in into.items() if isinstance(size, int)}
        parts = {axis: names for axis, names in into.items() if not isinstance(names, int)}
        _check_names(self.extent, parts)
        pairs: list[tuple[str, int]] = []
        for axis, size in self.extent.items():
            pairs += _part(axis, size, into=parts.get(axis, {axis: size}), known=known).items()
        unused = known.keys() - {name for names in parts.values() if not isinstance(names, Mapping) for name in names}
        if unused:
            raise ConfigError(f"sizes given for {', '.join(sorted(unused))}, but no axis is split into that")
        return self._reshaped(Extent._of(*_checked(pairs)))

    def flatten(self, name: str) -> "Region":
        """The same points in the same order along one axis."""
        return self._reshaped(Extent({name: len(self)}))

    def rename(self, /, **names: str) -> "Region":
        """The same points with axes renamed, as in `rename(old="new")`."""
        _check_names(self.extent, names)
        pairs = ((names.get(axis, axis), size) for axis, size in self.extent.items())
        return self._reshaped(Extent._of(*_checked(pairs)))

    def _reshaped(self, extent: Extent) -> "Region":
        if self.extent.sizes == extent.sizes:
            return Region(self.base, extent, self._offset, self._strides, self._table)
        return _of_ranks(self.base, extent, self.ranks())

    def concat(self, other: "Region", *, axis: str) -> "Region":
        """These points followed by those of `other` along `axis`; both select from equal bases and share no rank."""
        _check_names(self.extent, (axis,))
        if self.base != other.base:
            raise ConfigError(f"cannot join regions of two bases, {self.base!r} and {other.base!r}")
        mine, others = self.extent, other.extent
        if mine.axes != others.axes or any(mine[name] != others[name] for name in mine if name != axis):
            raise ConfigError(f"cannot join {mine!r} and {others!r} along '{axis}'; all else must be equal")
        shared = set(self.ranks()).intersection(other.ranks())
        if shared:
            raise ConfigError(f"cannot join regions that share {len(shared)} ranks, such as {min(shared)}")
        at = mine.axes.index(axis)
        run, other_run = mine.sizes[at] * mine._strides[at], others.sizes[at] * others._strides[at]
        ranks: list[int] = []
        for block in range(len(self) // run):
            ranks += self.ranks()[block * run : (block + 1) * run]
            ranks += other.ranks()[block * other_run : (block + 1) * other_run]
        return _of_ranks(self.base, Extent._of(mine.axes, {**mine, axis: mine[axis] + others[axis]}.values()), ranks)

    def to_wire(self) -> tuple[object, ...]:
        """What `from_wire` takes, of ints, strings, tuples and bytes: a bitmap or four bytes a rank for a table."""
        shape = self.base.to_wire(), self.extent.to_wire()
        if self._table is None:
            return *shape, "strided", self._offset, *self._strides
        if max(self._table) // 8 < 4 * len(self) and all(map(operator.lt, self._table, self._table[1:])):
            bits = bytearray(self._table[-1] // 8 + 1)
            for rank in self._table:
                bits[rank // 8] |= 1 << rank % 8
            return *shape, "bitmap", bytes(bits)
        return *shape, "ranks", struct.pack(f"<{len(self)}I", *self._table)

    @classmethod
    def from_wire(cls, wire: object) -> "Region":
        """The region `to_wire` described, checked: ConfigError if no region could have."""
        match wire:
            case [base_wire, shape_wire, "strided", *numbers]:
                base, extent = Extent.from_wire(base_wire), Extent.from_wire(shape_wire)
                ints = [number for number in numbers if type(number) is int]
                if len(ints) == len(numbers) == len(extent) + 1:
                    region = _regular(base, extent, offset=ints[0], strides=ints[1:])
                    spans = [(size - 1) * stride for size, stride in zip(extent.sizes, region._strides, strict=True)]
                    low, high = (region._offset + sum(pick(span, 0) for span in spans) for pick in (min, max))
                    if low >= 0 and high < base.num_points and _nested(region):
                        return region
            case [base_wire, shape_wire, "bitmap" | "ranks" as kind, bytes(packed)]:
                base, extent = Extent.from_wire(base_wire), Extent.from_wire(shape_wire)
                ranks = _unpack(kind, packed)
                if len(ranks) == extent.num_points == len(set(ranks)) and max(ranks) < base.num_points:
                    return _of_ranks(base, extent, ranks)
        raise ConfigError(f"malformed region {wire!r:.80}")

    def __reduce__(self) -> tuple[Callable[[object], "Region"], tuple[object]]:
        return Region.from_wire, (self.to_wire(),)

    def __len__(self) -> int:
        return self.extent.num_points

    def __contains__(self, rank: object) -> bool:
        return isinstance(rank, int) and self._find(rank) is not None

    def __iter__(self) -> Iterator["Region"]:
        extent = Extent._of((), ())
        return (Region(self.base, extent, rank, (), None) for rank in self.ranks())

    def __repr__(self) -> str:
        shown = ", ".join(str(self.rank_at(index)) for index in range(min(8, len(self))))
        return f"Region({self.sizes} of {dict(self.base)}, ranks {shown}{', ...' if len(self) > 8 else ''})"


def _checked(pairs: Iterable[tuple[object, object]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The axes and sizes of an extent, if they can be one."""
    axes: list[str] = []
    sizes: list[int] = []
    for axis, size in pairs:
        if not isinstance(axis, str) or not axis.isidentifier():
            raise ConfigError(f"axis name {axis!r:.80} is not an identifier; use one such as 'gpus'")
        if axis in axes:
            raise ConfigError(f"more than one axis would be called {axis}; every axis needs its own name")
        if type(size) is not int or size < 1:
            needs = "at least 1" if type(size) is int else "an int of at least 1"
            raise ConfigError(f"axis '{axis}' has size {size!r:.80}; every axis needs {needs}")
        axes.append(axis)
        sizes.append(size)
    if math.prod(sizes) > _MAX_POINTS:
        raise ConfigError(f"an extent has at most {_MAX_POINTS} points; sizes {sizes!s:.80} make more")
    return tuple(axes), tuple(sizes)


def _axes_text(extent: Extent) -> str:
    return f"the axes are {', '.join(extent.axes)}" if extent.axes else "there are no axes"


def _position(extent: Extent, axis: str) -> int:
    try:
        return extent.axes.index(axis)
    except ValueError:
        raise KeyError(f"no axis '{axis}'; {_axes_text(extent)}") from None


def _check_names(extent: Extent, names: Iterable[str], *, complete: bool = False) -> None:
    unknown = [name for name in names if name not in extent.axes]
    if unknown:
        raise ConfigError(f"no axis {', '.join(map(repr, unknown))}; {_axes_text(extent)}")
    missing = [axis for axis in extent.axes if axis not in names] if complete else []
    if missing:
        raise ConfigError(f"no index for {', '.join(missing)}; a point needs one for every axis")


def _index(axis: str, size: int, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"axis '{axis}' cannot be indexed by {value!r:.80}; use an int, a slice or a list")
    index = operator.index(value)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for axis '{axis}' of size {size}")
    return index % size


def _pick(axis: str, size: int, selector: object) -> int | range | tuple[int, ...]:
    """An index in range, or the non-empty ones selected: a range if they are evenly spaced."""
    if not isinstance(selector, slice | tuple | list | range):
        return _index(axis, size, selector)
    if isinstance(selector, slice):
        try:
            picked = range(size)[selector]
        except (TypeError, ValueError) as error:
            raise ConfigError(f"axis '{axis}' cannot be sliced by {selector}: {error}") from error
    else:
        indexes = tuple(_index(axis, size, value) for value in selector)
        if len(set(indexes)) < len(indexes):
            raise ConfigError(f"{selector!r:.80} names a place of axis '{axis}' twice; name each once")
        step = indexes[1] - indexes[0] if len(indexes) > 1 else 1
        picked = range(indexes[0], indexes[0] + step * len(indexes), step) if indexes else range(0)
        if tuple(picked) != indexes:
            return indexes
    if not picked:
        raise ConfigError(f"{selector!r:.80} selects nothing of axis '{axis}' of size {size}; select at least one")
    return picked


def _part(axis: str, size: int, *, into: Mapping[str, int] | Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """The new axes that one axis is split into, with at most one size worked out."""
    if not into or not isinstance(into, Mapping | tuple | list):
        raise ConfigError(f"axis '{axis}' cannot be split into {into!r:.80}; name the new axes as in ('dp', 'tp')")
    names, _ = _checked((name, 1) for name in into)
    sizes = dict(into) if isinstance(into, Mapping) else {name: known[name] for name in names if name in known}
    _checked(sizes.items())
    unknown = [name for name in names if name not in sizes]
    if len(unknown) > 1:
        raise ConfigError(f"axis '{axis}' is split into {', '.join(unknown)} of unknown size; give all sizes but one")
    product = math.prod(sizes.values())
    if size % product if unknown else size != product:
        raise ConfigError(f"axis '{axis}' of size {size} cannot be split into {sizes}, which makes {product}")
    return {name: sizes.get(name, size // product) for name in names}


def _regular(base: Extent, extent: Extent, *, offset: int, strides: Iterable[int]) -> Region:
    """A region without table, in canonical form: an axis of size 1 has stride 0."""
    steps = tuple([stride if size > 1 else 0 for size, stride in zip(extent.sizes, strides, strict=True)])
    return Region(base, extent, offset, steps, None)


def _nested(region: Region) -> bool:
    reach = 0
    axes = zip(region._strides, region.extent.sizes, strict=True)
    for stride, size in sorted((abs(stride), size) for stride, size in axes):
        if size > 1 and stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _of_ranks(base: Extent, extent: Extent, ranks: Sequence[int]) -> Region:
    """The region of these distinct ranks, regular if it can be."""
    axes = zip(extent.sizes, extent._strides, strict=True)
    strides = [ranks[inner] - ranks[0] if size > 1 else 0 for size, inner in axes]
    region = _regular(base, extent, offset=ranks[0], strides=strides)
    if _nested(region) and (isinstance(ranks, range) or tuple(region.ranks()) == tuple(ranks)):
        return region
    return Region(base, extent, 0, (), tuple(ranks))


def _unpack(kind: object, packed: bytes) -> Sequence[int]:
    if kind == "bitmap":
        return [8 * at + bit for at, byte in enumerate(packed) if byte for bit in range(8) if byte >> bit & 1]
    return struct.unpack(f"<{len(packed) // 4}I", packed) if len(packed) % 4 == 0 else ()
