"""Places of a `RayEvaluator`'s actors, and the facts known about each. Part of `ray_evaluator`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from kernelgym.capabilities import Capabilities, DeviceHealth
from kernelgym.errors import JudgeError, UsageError
from kernelgym.evaluators.ray_actor import ActorReport

_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception): .*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """Plan of an evaluator's actors: their class, resources and number."""

    made_by: str
    """Class of the evaluator in each actor, as ``module:name``."""
    arguments: Mapping[str, Any]
    """Arguments of that class."""
    needs: Mapping[str, float]
    """Resources of one actor by Ray's names."""
    workers: int
    """Number of kernels that an actor judges at the same time."""
    actors: int | None
    """Number of actors; None for as many as the cluster has place for."""
    device: str
    """Device in verdicts that no actor gave."""
    ruleset: str
    """Label of the rules in verdicts that no actor gave."""
    patience_s: float
    """Seconds without an actor after which waiting jobs become `unavailable`."""


class ActorLost(Exception):
    """The actor of a call is lost, or the evaluator was closed."""

    def __init__(self, why: str, had_begun: bool = True) -> None:
        super().__init__(why)
        self.had_begun = had_begun


@dataclass(slots=True, eq=False)
class LiveActor:
    """One actor, from its start to its loss."""

    handle: Any
    report: ActorReport | None = None
    slots: list[int] = field(default_factory=list)
    answers: set[Future[Any]] = field(default_factory=set)
    """Futures of the calls that the actor has not answered."""
    lost: str = ""
    """Reason why the actor is lost; empty while it is not."""


@dataclass(slots=True, eq=False)
class ActorPost:
    """Place of an evaluator for one actor at a time, which is replaced when lost."""

    number: int
    actor: LiveActor | None = None
    retry_at: float = 0.0
    failures: int = 0
    """Number of actors in a row that were lost without a verdict."""
    lost_calls: int = 0
    lost_actors: int = 0
    reason: str = ""
    """Reason why the last actor was lost."""

    def health(self) -> DeviceHealth:
        """Return the counts as they are now."""
        serves = self.actor is not None and bool(self.actor.slots)
        return DeviceHealth(
            f"actor {self.number}",
            serves,
            lost=self.lost_calls,
            taken_out=self.lost_actors,
            reason="" if serves else self.reason,
        )


def give(answer: Future[Any], outcome: Any) -> None:
    """Settle an actor's future that another thread may have settled."""
    try:
        if isinstance(outcome, ActorLost | JudgeError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)
    except InvalidStateError:
        pass


def line_of(error: BaseException) -> str:
    """Return an error's text in one line; of an error on a node, the error's own line."""
    if isinstance(error, UsageError | ActorLost):
        return str(error)
    if found := _ERROR_LINE.findall(str(error)):
        return str(found[-1])
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def differing(one: Capabilities, other: Capabilities) -> str:
    """Return the lines of provenance in which two actors differ."""
    pairs = zip(one.provenance, other.provenance, strict=False)
    return ", ".join(f"{a!r} and {b!r}" for a, b in pairs if a != b) or "the number of facts"
