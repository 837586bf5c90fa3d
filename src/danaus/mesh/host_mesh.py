"""`HostMesh`: machines on which procs are spawned; `this_host` is the own one."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from danaus.errors import ConfigError
from danaus.mesh.algebra import MeshAlgebra
from danaus.mesh.client import current_proc
from danaus.mesh.proc_mesh import ProcMesh
from danaus.mesh.refs import HostsRef, ProcsRef, encode_ref, new_id
from danaus.protocol.message import SpawnProcs, proc_id
from danaus.runtime.checks import check_name
from danaus.runtime.pickling import Pickled
from danaus.runtime.regions import region_bytes, region_of
from danaus.topology import Extent, Region


class HostMesh(MeshAlgebra):
    """A reference to hosts by their agents."""

    def __init__(self, ref: HostsRef, region: Region) -> None:
        self._ref = ref
        self._region = region

    @property
    def region(self) -> Region:
        """The hosts this reference covers."""
        return self._region

    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        bootstrap: Callable[[], object] | None = None,
        name: str = "procs",
    ) -> ProcMesh:
        """Start procs on each host. Returns at once; the first use waits.

        Args:
            per_host: axes of the procs of one host, as `{"gpus": 8}`, after those of the hosts; none is one proc.
            env: variables set in each proc before its interpreter starts, on top of the caller's environment.
            bootstrap: called in each proc before any actor is made. If it raises, the proc ends.
            name: how messages to people call the mesh.

        Raises:
            ConfigError: an axis has no size, or two have one name.
            NotPicklable: `bootstrap` cannot travel.
        """
        check_name(name)
        if bootstrap is not None and not callable(bootstrap):
            raise TypeError(f"bootstrap is {bootstrap!r}; it is called in each proc, without arguments")
        per_host_extent = Extent(per_host or {})
        environ = _checked_environ(env or {})
        proc = current_proc()
        base = self._region.extent.concat(per_host_extent)
        host_ranks = self._region.ranks()
        agents = tuple(self._ref.agents[rank] for rank in host_ranks)
        num = per_host_extent.num_points
        region = region_bytes(base.region)
        ref = ProcsRef(new_id("p"), name, agents, num, region, encode_ref((self._ref, self._region.to_wire())))
        pickled = Pickled(b"")
        if bootstrap is not None:
            pickled = proc.book.dumps_call(bootstrap, (), {}, what="bootstrap")
        owner, children = proc.owner()
        mesh = ProcMesh(ref)
        agent_of = ref.agent_finder()
        message = SpawnProcs(
            mesh=ref.id,
            name=name,
            ranks=(),
            region=region,
            procs=encode_ref(ref),
            environ=environ,
            sys_path=tuple(sys.path),
            directory=os.getcwd(),
            owner=proc.origin(),
            owner_agent=proc.identity.agent.to_text(),
        )
        with proc.reactor.shield:  # all of it or nothing
            proc.owners.own_procs(ref.id, owner)
            children[ref.id] = lambda timeout_s, now: mesh.stop(timeout_s, now=now)
            for first in range(0, len(agents) * num, num):
                ranks = tuple(range(first, first + num))
                agent = agent_of(first)
                for rank in ranks:
                    proc.peers.know(proc_id(ref.id, rank), agent)
                to_host = msgspec.structs.replace(message, ranks=ranks)
                proc.reactor.post(partial(proc.peers.send_to_agent, agent, to_host, pickled))
        return mesh

    def _with_region(self, region: Region) -> "HostMesh":
        return HostMesh(self._ref, region)

    def _same_mesh(self, other: "HostMesh") -> bool:
        return self._ref == other._ref

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostMesh) and self._ref == other._ref and self._region == other._region

    def __hash__(self) -> int:
        return hash((self._ref, self._region))

    def __reduce__(self) -> tuple[object, ...]:
        return restore_host_mesh, (encode_ref(self._ref), region_bytes(self._region))

    def __repr__(self) -> str:
        return f"HostMesh({self._ref.name!r}, {dict(self.extent)})"


_hosts_decoder = msgspec.msgpack.Decoder(HostsRef)


def restore_host_mesh(ref: bytes, region: bytes) -> HostMesh:
    """A mesh that came in a message."""
    return HostMesh(_hosts_decoder.decode(ref), region_of(region))


def this_host() -> HostMesh:
    """The own machine, as a mesh without axes. In the client, its agent starts on first use."""
    agent = current_proc().identity.agent
    return HostMesh(HostsRef("this_host", (agent.to_text(),)), Extent({}).region)


def _checked_environ(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        texts: tuple[object, object] = name, value  # what the annotation says, an untyped caller may not keep
        if not all(isinstance(text, str) for text in texts) or not name or "=" in name or "\0" in name + value:
            raise ConfigError(
                f"env[{name!r}] = {value!r}: names and values are strings, without NUL, names without '='"
            )
    return dict(env)
