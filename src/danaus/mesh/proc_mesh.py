"""`ProcMesh`: processes over an extent, on which actors are spawned."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, Self, TypeVar, cast

import msgspec

from danaus.errors import ConfigError, MeshFailed, MeshStopped
from danaus.mesh.actor import MESH_NAMES, Actor
from danaus.mesh.actor_mesh import ActorMesh
from danaus.mesh.algebra import MeshAlgebra
from danaus.mesh.client import current_proc
from danaus.mesh.endpoint import Endpoint
from danaus.mesh.refs import ActorsRef, ProcsRef, decode_procs, encode_ref, new_id
from danaus.protocol.message import Drain, Ping, SpawnActor, StopProcs, proc_id
from danaus.protocol.routing import AgentRef
from danaus.runtime.calls import CallPlan
from danaus.runtime.checks import check_name, check_timeout_s
from danaus.runtime.future import Future
from danaus.runtime.proc import Proc
from danaus.runtime.regions import region_bytes
from danaus.topology import Region

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)


class ProcMesh(MeshAlgebra):
    """A reference to procs. Whoever spawned them owns them; slices and copies only refer."""

    def __init__(self, ref: ProcsRef) -> None:
        self._ref = ref
        self._region = ref.whole_region()
        self._agent_of = ref.agent_finder()

    @property
    def region(self) -> Region:
        """The ranks this reference covers."""
        return self._region

    @property
    def ref(self) -> ProcsRef:
        """What names these procs in messages."""
        return self._ref

    @property
    def initialized(self) -> Future[None]:
        """Done when every proc is up and its bootstrap has run; raises why one is not."""
        proc = current_proc()
        call, future = proc.calls.open(self._plan("initialized"))
        for rank in self._region.ranks():
            target = proc_id(self._ref.id, rank)
            gone = proc.peers.gone(target)
            if gone is not None:
                dead = MeshStopped(self._ref.name) if gone.planned else MeshFailed(gone.failure)
                proc.calls.fail(call, rank, dead, "" if gone.planned else target)
            else:
                proc.send(target, self._agent_of(rank), Ping(call, rank))
        return future

    def spawn(self, name: str, cls: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        """Make an actor on each proc of this region. Returns at once; the first use waits for the constructor.

        Args:
            name: how messages to people call the mesh.
            cls: a subclass of `Actor`; `args` and `kwargs` go to its constructor.

        Returns:
            An `ActorMesh`, declared as `cls` so that the endpoints on it are typed.

        Raises:
            TypeError: `cls` is no `Actor`, or the arguments do not fit its constructor.
            NotPicklable: an argument cannot travel.
            MeshStopped, MeshFailed: the procs are no more.
        """
        check_name(name)
        _check_class(cls)
        assert isinstance(cls, type)
        try:
            inspect.signature(cls).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}{inspect.signature(cls)}: {error}") from None
        proc = current_proc()
        self._check_alive(proc)
        pickled = proc.book.dumps_call(cls, args, kwargs, what=cls.__name__)
        region = region_bytes(self._region)
        ref = ActorsRef(new_id("a"), name, cls.__name__, self._ref, region, region)
        owner, children = proc.owner()
        message = SpawnActor(
            actor=ref.id,
            name=name,
            class_name=cls.__name__,
            rank=0,
            region=region,
            procs=encode_ref(self._ref),
            owner=proc.origin(),
            owner_agent=proc.identity.agent.to_text(),
            call=0,
            code=pickled.code_ids,
        )
        ranks = self._region.ranks()
        with proc.reactor.shield:  # all of it or nothing
            proc.owners.own_actors(ref.id, self._ref.id, owner=owner, ranks=ranks)
            call, initialized = proc.calls.open(self._plan(f"{name}.__init__", mesh=name, class_name=cls.__name__))
            mesh = ActorMesh(ref, cls, initialized)
            children[ref.id] = lambda timeout_s, now: mesh.stop(timeout_s, now=now)
            for rank in ranks:
                to_rank = msgspec.structs.replace(message, rank=rank, call=call)
                proc.send(proc_id(self._ref.id, rank), self._agent_of(rank), to_rank, pickled)
        return cast(A, mesh)

    def stop(self, timeout_s: float | None = None, *, now: bool = False) -> Future[None]:
        """End the procs of this region: actors drain (unless `now`) and clean up, then the processes exit.

        The future is done when they are gone; what runs after `timeout_s` (the setting `stop_timeout_s`) is killed.
        """
        check_timeout_s(timeout_s, zero=True)
        proc = current_proc()
        timeout_s = proc.settings.stop_timeout_s if timeout_s is None else timeout_s
        with proc.reactor.shield:
            if self._region.is_whole:
                proc.owners.disown(self._ref.id)
                proc.owner()[1].pop(self._ref.id, None)
            call, future = proc.calls.open(self._plan("stop", waits_for_all=True))
            by_agent: dict[AgentRef, list[int]] = {}
            for rank in self._region.ranks():
                target, agent = proc_id(self._ref.id, rank), self._agent_of(rank)
                if proc.peers.gone(target) is not None:
                    proc.calls.fail(call, rank, MeshStopped(self._ref.name))
                    continue
                by_agent.setdefault(agent, []).append(rank)
                if not now:
                    proc.send(target, agent, Drain(timeout_s))
            for agent, ranks in by_agent.items():
                message = StopProcs(self._ref.id, tuple(ranks), call, timeout_s, now)
                proc.reactor.post(partial(proc.peers.send_to_agent, agent, message))
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(now=exc[0] is not None).get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop(now=exc[0] is not None)

    def _check_alive(self, proc: Proc) -> None:
        for rank in self._region.ranks():
            gone = proc.peers.gone(proc_id(self._ref.id, rank))
            if gone is not None:
                raise MeshStopped(self._ref.name) if gone.planned else MeshFailed(gone.failure)

    def _plan(self, text: str, *, mesh: str = "", class_name: str = "", waits_for_all: bool = False) -> CallPlan[None]:
        return CallPlan(
            text=text,
            mesh=mesh or self._ref.name,
            class_name=class_name,
            procs=self._ref.id,
            region=self._region,
            finish=_nothing,
            agent_of=self._agent_of,
            return_exceptions=waits_for_all,
            passive=True,
        )

    def _with_region(self, region: Region) -> "ProcMesh":
        return ProcMesh(self._ref.with_region(region))

    def _same_mesh(self, other: "ProcMesh") -> bool:
        return self._ref.id == other._ref.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcMesh) and self._ref == other._ref

    def __hash__(self) -> int:
        return hash((self._ref.id, self._ref.region))

    def __reduce__(self) -> tuple[object, ...]:
        return restore_proc_mesh, (encode_ref(self._ref),)

    def __repr__(self) -> str:
        return f"ProcMesh({self._ref.name!r}, {dict(self.extent)})"


def restore_proc_mesh(ref: bytes) -> ProcMesh:
    """A mesh that came in a message."""
    return ProcMesh(decode_procs(ref))


def _nothing(_: list[object]) -> None:
    """What a spawn or a stop has as its result."""


def _check_class(cls: object) -> None:
    if not isinstance(cls, type) or not issubclass(cls, Actor):
        raise TypeError(f"spawn needs a subclass of danaus.Actor, got {cls!r}")
    taken = sorted(name for name in MESH_NAMES if isinstance(getattr(cls, name, None), Endpoint))
    if taken:
        raise ConfigError(f"{cls.__name__}: endpoints cannot be called {', '.join(taken)}, meshes have these names")
