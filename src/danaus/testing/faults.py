"""`FaultPlan`: what goes wrong on an in-memory link, decided by a seed. Decides only; the link delivers and kills."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, assert_never

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Which(Generic[F]):
    """The frames a rule is about: of those `matching` (all) the `nth` (every) counted from 1, or a random `share`."""

    nth: int | None = None
    matching: Callable[[F], bool] | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.nth is not None and self.nth < 1:
            raise ValueError(f"nth is {self.nth}; frames are counted from 1")
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share is {self.share:g}; use 0 to 1")


@dataclass(frozen=True, slots=True)
class Drop(Generic[F]):
    """The frame never arrives."""

    which: Which[F]


@dataclass(frozen=True, slots=True)
class Delay(Generic[F]):
    """The frame arrives `delay_s` later."""

    which: Which[F]
    delay_s: float


@dataclass(frozen=True, slots=True)
class Reorder(Generic[F]):
    """The frame arrives at a random moment of the next `window_s`, so frames sent that close overtake each other."""

    which: Which[F]
    window_s: float


@dataclass(frozen=True, slots=True)
class Double(Generic[F]):
    """The frame arrives twice."""

    which: Which[F]


@dataclass(frozen=True, slots=True)
class Kill:
    """`proc` dies, as by SIGKILL, once `after_frames` frames were sent on the link."""

    proc: str
    after_frames: int


@dataclass(frozen=True, slots=True)
class Stop:
    """`proc` freezes, as by SIGSTOP, once `after_frames` frames were sent on the link."""

    proc: str
    after_frames: int


FrameFault: TypeAlias = Drop[F] | Delay[F] | Reorder[F] | Double[F]
ProcFault: TypeAlias = Kill | Stop
Fault: TypeAlias = FrameFault[F] | ProcFault


class FaultPlan(Generic[F]):
    """Rules for the frames of one link, applied in the order given; each sees what the ones before it let through.

        plan = FaultPlan[bytes](seed=7).drop(nth=3).double(share=0.1).reorder(0.05).kill("trainers.2", after_frames=40)

    The same seed, rules and frames give the same decisions. A plan counts the frames it saw, so each link needs its
    own: `for_link`.
    """

    def __init__(self, rules: Sequence[Fault[F]] = (), *, seed: int | str = 0) -> None:
        self.seed = seed
        self.rules: tuple[Fault[F], ...] = tuple(rules)
        # A generator for each rule: a rule added later changes no decision of the others.
        self._dice = [random.Random(f"{seed}/{index}") for index in range(len(self.rules))]
        self._matched = [0] * len(self.rules)
        self._num_frames = 0
        self._due: list[ProcFault] = []

    @classmethod
    def random(
        cls,
        seed: int | str,
        *,
        lossy: bool = True,
        max_delay_s: float = 0.05,
        procs: Sequence[str] = (),
        within_frames: int = 100,
    ) -> "FaultPlan[F]":
        """A plan drawn by `seed`: late, overtaking, doubled and, if `lossy`, lost frames.

        Args:
            max_delay_s: the most that one rule holds a frame back.
            procs: one of them dies or freezes within `within_frames` frames; empty for none.
        """
        dice = random.Random(f"plan/{seed}")
        rules: list[Fault[F]] = []
        if lossy:
            rules.append(Drop(Which(share=dice.uniform(0.0, 0.2))))
        rules.append(Double(Which(share=dice.uniform(0.0, 0.2))))
        rules.append(Delay(Which(share=dice.uniform(0.0, 0.5)), dice.uniform(0.0, max_delay_s)))
        rules.append(Reorder(Which(share=dice.uniform(0.2, 1.0)), dice.uniform(0.0, max_delay_s)))
        if procs:
            fault = dice.choice((Kill, Stop))
            rules.append(fault(dice.choice(procs), dice.randint(1, within_frames)))
        return cls(rules, seed=seed)

    def for_link(self, link: str) -> "FaultPlan[F]":
        """The same rules with nothing counted yet and dice of the link's own, whatever happens on other links."""
        return FaultPlan(self.rules, seed=f"{self.seed}/{link}")

    def drop(
        self, *, nth: int | None = None, matching: Callable[[F], bool] | None = None, share: float = 1.0
    ) -> "FaultPlan[F]":
        """This plan, not yet begun, with a loss added."""
        return self._with(Drop(Which(nth, matching, share)))

    def delay(
        self,
        delay_s: float,
        *,
        nth: int | None = None,
        matching: Callable[[F], bool] | None = None,
        share: float = 1.0,
    ) -> "FaultPlan[F]":
        """This plan, not yet begun, with a delay added."""
        return self._with(Delay(Which(nth, matching, share), delay_s))

    def reorder(
        self,
        window_s: float,
        *,
        nth: int | None = None,
        matching: Callable[[F], bool] | None = None,
        share: float = 1.0,
    ) -> "FaultPlan[F]":
        """This plan, not yet begun, with frames sent within `window_s` overtaking each other."""
        return self._with(Reorder(Which(nth, matching, share), window_s))

    def double(
        self, *, nth: int | None = None, matching: Callable[[F], bool] | None = None, share: float = 1.0
    ) -> "FaultPlan[F]":
        """This plan, not yet begun, with a doubled frame added."""
        return self._with(Double(Which(nth, matching, share)))

    def kill(self, proc: str, *, after_frames: int) -> "FaultPlan[F]":
        """This plan, not yet begun, with the death of `proc` added."""
        return self._with(Kill(proc, after_frames))

    def stop(self, proc: str, *, after_frames: int) -> "FaultPlan[F]":
        """This plan, not yet begun, with `proc` freezing added."""
        return self._with(Stop(proc, after_frames))

    def apply(self, frame: F, now: float) -> list[tuple[float, F]]:
        """When to deliver `frame`, sent `now`: (moment, frame) once, several times or never.

        Deliver in the order of the moments; equal moments keep the order in which frames were sent.
        """
        self._num_frames += 1
        moments = [now]
        for index, rule in enumerate(self.rules):
            if isinstance(rule, Kill | Stop):
                if rule.after_frames == self._num_frames:
                    self._due.append(rule)
            else:
                moments = [after for moment in moments for after in self._moments(index, rule, frame, moment)]
        return [(moment, frame) for moment in sorted(moments)]

    def take_due(self) -> list[ProcFault]:
        """The deaths and stops that the frames so far brought about and that were not taken yet."""
        due, self._due = self._due, []
        return due

    def __repr__(self) -> str:
        return f"FaultPlan({list(self.rules)!r}, seed={self.seed!r})"

    def _with(self, rule: Fault[F]) -> "FaultPlan[F]":
        return FaultPlan((*self.rules, rule), seed=self.seed)

    def _moments(self, index: int, rule: FrameFault[F], frame: F, moment: float) -> list[float]:
        if not self._concerns(index, rule.which, frame):
            return [moment]
        match rule:
            case Drop():
                return []
            case Delay(delay_s=delay_s):
                return [moment + delay_s]
            case Reorder(window_s=window_s):
                return [moment + self._dice[index].uniform(0.0, window_s)]
            case Double():
                return [moment, moment]
            case _:
                assert_never(rule)

    def _concerns(self, index: int, which: Which[F], frame: F) -> bool:
        if which.matching is not None and not which.matching(frame):
            return False
        self._matched[index] += 1
        if which.nth is not None and which.nth != self._matched[index]:
            return False
        return which.share == 1.0 or self._dice[index].random() < which.share
