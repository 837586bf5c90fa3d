"""`MeshAlgebra`: slicing and reshaping, the same for every kind of mesh. The arithmetic is topology's."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

from danaus.errors import ConfigError
from danaus.topology import Extent, Region, Selector, Split


class MeshAlgebra(ABC):
    """A mesh over a region of ranks. Every method here gives a reference; nothing is started, moved or stopped."""

    @property
    @abstractmethod
    def region(self) -> Region:
        """The ranks of the whole mesh that this one covers."""

    @abstractmethod
    def _with_region(self, region: Region) -> Self:
        """The same mesh over another region of the same base."""

    @abstractmethod
    def _same_mesh(self, other: Self) -> bool:
        """Whether both are slices of one mesh."""

    @property
    def extent(self) -> Extent:
        """Axis -> size."""
        return self.region.extent

    @property
    def sizes(self) -> dict[str, int]:
        """Axis -> size, as a dict of your own."""
        return self.region.sizes

    def size(self, axis: str | Sequence[str] | None = None) -> int:
        """How many points there are in all, along one axis, or in the product of several axes."""
        return self.region.size(axis)

    def slice(self, /, **selectors: Selector) -> Self:
        """The part that the selectors choose: an index drops its axis, a slice or a list of indexes keeps it."""
        return self._with_region(self.region.slice(**selectors))

    def at(self, /, **coords: int) -> Self:
        """The mesh of the one point at these coordinates, one for each axis."""
        return self._with_region(self.region.at(**coords))

    def split(self, /, **into: Split) -> Self:
        """One axis as several: `split(gpus={"dp": 2, "tp": 4})`, or `split(gpus=("dp", "tp"), tp=4)`."""
        return self._with_region(self.region.split(**into))

    def flatten(self, name: str) -> Self:
        """All axes as one called `name`."""
        return self._with_region(self.region.flatten(name))

    def rename(self, /, **names: str) -> Self:
        """Axes under new names: `rename(gpus="workers")`."""
        return self._with_region(self.region.rename(**names))

    def concat(self, other: Self, *, axis: str) -> Self:
        """This mesh followed by another slice of the same mesh along `axis`."""
        if not self._same_mesh(other):
            raise ConfigError("cannot join slices of two meshes; keep them apart and call each")
        return self._with_region(self.region.concat(other.region, axis=axis))

    def __len__(self) -> int:
        return len(self.region)

    def __iter__(self) -> Iterator[Self]:
        return (self._with_region(region) for region in self.region)
