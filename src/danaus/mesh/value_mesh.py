"""`ValueMesh`: one value for each point of a region: what a call on a mesh returns."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from danaus.errors import ConfigError
from danaus.mesh.algebra import MeshAlgebra
from danaus.topology import Extent, Point, Region

T = TypeVar("T")


class ValueMesh(MeshAlgebra, Generic[T]):
    """Values in the order of a region. Slices like any mesh; iterates `(point, value)`."""

    def __init__(self, extent: Extent, values: Sequence[T], region: Region | None = None) -> None:
        """Values for the points of `extent`, in row-major order."""
        if len(values) != extent.num_points:
            raise ConfigError(f"{len(values)} values do not fit an extent of {extent.num_points} points")
        self._values = values
        self._region = region or extent.region

    @property
    def region(self) -> Region:
        """The part of the values that this one covers."""
        return self._region

    def _with_region(self, region: Region) -> "ValueMesh[T]":
        return ValueMesh(region.base, self._values, region)

    def _same_mesh(self, other: "ValueMesh[T]") -> bool:
        return self._values is other._values

    def items(self) -> Iterator[tuple[Point, T]]:
        """Each point with its value."""
        return zip(self._region.points(), self.values(), strict=True)

    def __iter__(self) -> Iterator[tuple[Point, T]]:  # type: ignore[override]
        return self.items()

    def values(self) -> Iterator[T]:
        """The values in row-major order."""
        return (self._values[rank] for rank in self._region.ranks())

    def item(self, **coords: int) -> T:
        """The value at one point; no coordinates are needed where there is only one."""
        region = self._region.slice(**coords) if coords else self._region
        if len(region) != 1:
            raise ConfigError(f"item() needs one point, these coordinates leave {len(region)}: {region.extent}")
        return self._values[region.rank_at(0)]

    def to_list(self) -> list[T]:
        """The values in row-major order, as a list."""
        return list(self.values())

    def __repr__(self) -> str:
        shown = ", ".join(f"{str(point) or 'value'}: {value!r}" for point, value in list(self.items())[:8])
        return f"ValueMesh({shown}{', ...' if len(self) > 8 else ''})"
