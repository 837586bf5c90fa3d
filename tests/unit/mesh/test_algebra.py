"""What every kind of mesh can do with its axes."""

from dataclasses import dataclass

import pytest

from danaus.errors import ConfigError
from danaus.mesh.algebra import MeshAlgebra
from danaus.topology import Extent, Region

NODE = Extent({"hosts": 2, "gpus": 4})


@dataclass(frozen=True)
class Crew(MeshAlgebra):
    name: str
    _region: Region

    @property
    def region(self) -> Region:
        return self._region

    def _with_region(self, region: Region) -> "Crew":
        return Crew(self.name, region)

    def _same_mesh(self, other: "Crew") -> bool:
        return self.name == other.name


def test_a_mesh_has_the_algebra_of_its_region() -> None:
    mesh, region = Crew("crew", NODE.region), NODE.region
    assert mesh.slice(gpus=[0, 3]) == Crew("crew", region.slice(gpus=[0, 3]))
    assert mesh.at(hosts=1, gpus=2) == Crew("crew", region.at(hosts=1, gpus=2))
    assert mesh.split(gpus=("dp", "tp"), tp=2) == Crew("crew", region.split(gpus=("dp", "tp"), tp=2))
    assert mesh.flatten("all") == Crew("crew", region.flatten("all"))
    assert mesh.rename(gpus="gpu") == Crew("crew", region.rename(gpus="gpu"))
    assert (mesh.extent, mesh.sizes, mesh.size("gpus"), len(mesh)) == (NODE, dict(NODE), 4, 8)
    assert [part.region for part in mesh] == list(region)


def test_slices_of_one_mesh_can_be_joined_and_those_of_two_cannot() -> None:
    mesh, stranger = Crew("crew", NODE.region), Crew("stranger", NODE.region)
    assert mesh.slice(gpus=[0]).concat(mesh.slice(gpus=[1, 2, 3]), axis="gpus") == mesh
    with pytest.raises(ConfigError, match="slices of two meshes"):
        mesh.slice(gpus=[0]).concat(stranger.slice(gpus=[1]), axis="gpus")
