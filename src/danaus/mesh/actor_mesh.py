"""`ActorMesh`: actors of one class, one on each proc of a region: a reference that can be called, sliced and sent."""

from dataclasses import replace

import msgspec

from danaus.errors import ConfigError, MeshStopped
from danaus.mesh.actor import Actor
from danaus.mesh.algebra import MeshAlgebra
from danaus.mesh.client import current_proc
from danaus.mesh.endpoint import Arguments, CallOptions, Endpoint
from danaus.mesh.refs import ActorsRef, encode_ref
from danaus.mesh.value_mesh import ValueMesh
from danaus.protocol.message import StopActor, proc_id
from danaus.runtime.calls import CallPlan
from danaus.runtime.cell import EndpointFunction
from danaus.runtime.checks import check_timeout_s
from danaus.runtime.future import Future
from danaus.runtime.proc import Proc
from danaus.runtime.regions import region_bytes, region_of
from danaus.topology import Region

_decoder = msgspec.msgpack.Decoder(ActorsRef)


class ActorMesh(MeshAlgebra):
    """A reference to actors. Endpoints are its attributes: `mesh.step.call(3)`."""

    def __init__(self, ref: ActorsRef, cls: type[Actor], initialized: Future[None] | None = None) -> None:
        self._ref = ref
        self._cls = cls
        self._region = region_of(ref.region)
        self._agent_of = ref.procs.agent_finder()
        self._initialized = initialized
        self._plans: dict[tuple[str, float | None, bool, bool], CallPlan[object]] = {}

    @property
    def region(self) -> Region:
        """The ranks this reference covers."""
        return self._region

    @property
    def initialized(self) -> Future[None]:
        """Done when the constructors have run; raises what they raised. Only where the mesh was spawned."""
        if self._initialized is None:
            raise ConfigError(
                "initialized belongs to whoever spawned the mesh; a call waits for the constructor anyway"
            )
        return self._initialized

    def stop(self, timeout_s: float | None = None, *, now: bool = False) -> Future[None]:
        """Stop the actors of this region: refuse new messages, drain (unless `now`), stop children, clean up, end.

        The future is done when all have ended, at the latest after `timeout_s` (the setting `stop_timeout_s`).
        """
        check_timeout_s(timeout_s, zero=True)
        proc = current_proc()
        timeout_s = proc.settings.stop_timeout_s if timeout_s is None else timeout_s
        with proc.reactor.shield:
            return self._stop(proc, timeout_s, now=now)

    def _stop(self, proc: Proc, timeout_s: float, *, now: bool) -> Future[None]:
        procs = self._ref.procs
        if self._region.is_whole or self._ref.region == self._ref.spawned:
            proc.owners.disown(self._ref.id)
            proc.owner()[1].pop(self._ref.id, None)
        options = CallOptions(return_exceptions=True)
        plan: CallPlan[None] = replace(self._plan("stop", options, single=False), actor="", finish=lambda values: None)  # type: ignore[assignment]
        call, future = proc.calls.open(plan)
        for rank in self._region.ranks():
            if proc.peers.gone(proc_id(procs.id, rank)) is not None:
                proc.calls.fail(call, rank, MeshStopped(self._ref.name))
                continue
            message = StopActor(self._ref.id, rank, call, timeout_s, now)
            proc.send(proc_id(procs.id, rank), self._agent_of(rank), message)
        return future

    def call_endpoint(
        self, endpoint: EndpointFunction, arguments: Arguments, options: CallOptions, *, single: bool
    ) -> "Future[object]":
        """Send to every rank and collect the replies."""
        if single and len(self._region) != 1:
            raise ConfigError(
                f"call_one needs exactly one actor, {self._ref.name} has {len(self._region)}: {self.extent}; "
                f"slice it, or use call"
            )
        proc = current_proc()
        plan = self._plan(endpoint.name, options, single=single)
        return proc.call(plan, endpoint.name, proc.book.dumps_arguments(*arguments, what=plan.text))

    def broadcast_endpoint(
        self, endpoint: EndpointFunction, arguments: Arguments, options: CallOptions
    ) -> Future[None]:
        """Send to every rank; no replies."""
        proc = current_proc()
        plan = self._plan(endpoint.name, options, single=False)
        return proc.broadcast(plan, endpoint.name, proc.book.dumps_arguments(*arguments, what=plan.text))

    def _plan(self, name: str, options: CallOptions, *, single: bool) -> "CallPlan[object]":
        key = (name, options.timeout_s, options.return_exceptions, single)
        plan = self._plans.get(key)
        if plan is None:
            ref, extent = self._ref, self._region.extent
            plan = self._plans[key] = CallPlan(
                text=f"{ref.name}.{name}",
                mesh=ref.name,
                class_name=ref.class_name,
                procs=ref.procs.id,
                region=self._region,
                agent_of=self._agent_of,
                finish=_only if single else lambda values: ValueMesh(extent, values),
                actor=ref.id,
                targets=[(rank, proc_id(ref.procs.id, rank), self._agent_of(rank)) for rank in self._region.ranks()],
                region_wire=ref.region,
                timeout_s=options.timeout_s,
                return_exceptions=options.return_exceptions,
                single=single,
            )
        return plan

    def _with_region(self, region: Region) -> "ActorMesh":
        return ActorMesh(msgspec.structs.replace(self._ref, region=region_bytes(region)), self._cls)

    def _same_mesh(self, other: "ActorMesh") -> bool:
        return self._ref.id == other._ref.id

    def __getattr__(self, name: str) -> "Endpoint[..., object, object]":
        if name.startswith("__"):
            raise AttributeError(name)
        declared: object = getattr(self._cls, name, None)
        if not isinstance(declared, Endpoint):
            names = ", ".join(sorted(each for each in dir(self._cls) if isinstance(getattr(self._cls, each), Endpoint)))
            kind = "is not an endpoint" if declared is not None else "does not exist"
            message = f"{self._cls.__name__}.{name} {kind}; its endpoints are: {names or 'none'}"
            raise AttributeError(message)  # noqa: TRY004 - it is what getattr() and hasattr() expect
        bound = declared.bind(self)
        self.__dict__[name] = bound
        return bound

    def __dir__(self) -> list[str]:
        names = [name for name in dir(self._cls) if isinstance(getattr(self._cls, name, None), Endpoint)]
        return sorted({*super().__dir__(), *names})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ActorMesh):
            return NotImplemented
        return self._ref.id == other._ref.id and self._region == other._region

    def __hash__(self) -> int:
        return hash((self._ref.id, self._ref.region))

    def __reduce__(self) -> tuple[object, ...]:
        return restore_actor_mesh, (encode_ref(self._ref), self._cls)

    def __repr__(self) -> str:
        return f"ActorMesh({self._ref.name!r}, {self._ref.class_name}, {dict(self.extent)})"


def restore_actor_mesh(ref: bytes, cls: type[Actor]) -> ActorMesh:
    """A mesh that came in a message."""
    return ActorMesh(_decoder.decode(ref), cls)


def _only(values: list[object]) -> object:
    return values[0]
