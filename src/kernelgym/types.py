"""The nouns of kernelgym: frozen, slotted dataclasses that every module shares.

Nothing here does IO or imports anything outside the standard library. A record that crosses a
process or a file goes through `to_dict` / `Verdict.from_dict`: plain JSON, no NaN, no pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from kernelgym.rulesets import Ruleset
from kernelgym.verdict import Finding, Severity, Status, Timing, Verdict

__all__ = [
    "GAMMA",
    "Ended",
    "Evaluator",
    "Feedback",
    "Finding",
    "Job",
    "Kernel",
    "Message",
    "Problem",
    "Reply",
    "Score",
    "Severity",
    "Status",
    "Timing",
    "Trajectory",
    "Turn",
    "Verdict",
    "discounted_returns",
]


def _digest(text: str) -> str:
    """Return 16 hex digits of SHA-256; lone surrogates (legal in model text) are kept apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A reference program to be beaten, in KernelBench's format.

    `source` is a Python module that defines ``Model(nn.Module)``, ``get_inputs()`` and
    ``get_init_inputs()``.
    """

    id: str
    """Unique id: suite, level and number or name, such as ``KernelBench/L1/23``."""
    suite: str
    """Name of the suite the problem comes from."""
    level: int
    """Difficulty level, 1 and up; 0 where the suite has no levels."""
    name: str
    """Human-readable name, such as ``23_Softmax``."""
    source: str
    """The reference module's source text."""
    family: str = ""
    """Operator family, such as ``matmul``; splits keep a family on one side."""
    digest: str = field(init=False, repr=False)
    """First 16 hex digits of the SHA-256 of `source`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(self.source))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A candidate: a Python module that defines ``ModelNew`` (same constructor and `forward`)."""

    source: str
    """The module's source text."""
    language: str
    """A name from `kernelgym.languages.LANGUAGES`."""
    digest: str = field(init=False, repr=False)
    """First 16 hex digits of the SHA-256 of language and source."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(f"{self.language}\0{self.source}"))


@dataclass(frozen=True, slots=True)
class Reply:
    """What was read from a model's text."""

    kernel: Kernel | None
    """The last well-formed answer, or None."""
    thought: str = ""
    """Text of the thinking blocks, joined."""
    defects: tuple[str, ...] = ()
    """What was wrong with the text's form; empty for a clean answer."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the model is told about its last answer. ``str(feedback)`` is the text it reads."""

    category: str
    """``format, policy, compile, runtime, memory, timeout, numerics, success, ...``"""
    headline: str
    detail: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return "\n\n".join(part for part in (self.headline, self.detail, self.hint) if part)


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of one turn."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Weighted parts by name. They add up to `total` unless a floor or a cap applied."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer and what became of it."""

    index: int
    """0-based."""
    action: str
    """The model's text as given."""
    reply: Reply
    verdict: Verdict
    feedback: Feedback
    score: Score


GAMMA = 0.4
"""Default discount factor over the turns of an episode (Kevin-32B, arXiv 2507.11948)."""


def discounted_returns(
    scores: Sequence[float], gamma: float, *, horizon: int | None = None
) -> tuple[float, ...]:
    """Return ``R_t = s_t + gamma * s_{t+1} + gamma^2 * s_{t+2} + ...`` for every turn t.

    Args:
        scores: One score per turn played.
        gamma: Discount factor in [0, 1].
        horizon: If given, the last score is taken to repeat until that many turns are played.

    Raises:
        ValueError: If `gamma` lies outside [0, 1].
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
    tail = 0.0
    if horizon is not None and scores:
        for _ in range(horizon - len(scores)):
            tail = scores[-1] + gamma * tail
    returns: list[float] = []
    for score in reversed(scores):
        tail = score + gamma * tail
        returns.append(tail)
    return tuple(reversed(returns))


Ended = Literal["", "solved", "budget", "no_improvement", "cut"]
"""Why an episode ended; empty while it goes on, ``cut`` if something outside ended it."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode: a problem and the turns played on it."""

    problem: Problem
    turns: tuple[Turn, ...] = ()
    ended: Ended = ""
    horizon: int = 1
    """The turn budget the episode was given."""

    @property
    def scores(self) -> tuple[float, ...]:
        """Score totals, one per turn played."""
        return tuple(turn.score.total for turn in self.turns)

    @property
    def valid(self) -> bool:
        """False if any turn's verdict is `unavailable`; trainers drop the whole trajectory."""
        return all(turn.verdict.valid for turn in self.turns)

    @property
    def best(self) -> Turn | None:
        """The turn with the highest score, the earliest on a tie; None before the first turn."""
        return max(self.turns, key=lambda turn: turn.score.total, default=None)

    def returns(self, gamma: float) -> tuple[float, ...]:
        """Return the discounted return from each turn played on.

        ``R_t = s_t + gamma * s_{t+1} + ...`` (Kevin-32B, arXiv 2507.11948). An episode that ended
        solved is absorbing: its last score repeats up to the horizon, so that solving earlier
        never pays less than solving later.

        Args:
            gamma: Discount factor in [0, 1].

        Returns:
            One float per turn played.

        Raises:
            ValueError: If `gamma` lies outside [0, 1].
        """
        horizon = self.horizon if self.ended == "solved" else None
        return discounted_returns(self.scores, gamma, horizon=horizon)


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to be judged on one problem."""

    problem: Problem
    kernel: Kernel


@runtime_checkable
class Evaluator(Protocol):
    """Judges kernels; bound to one device and one ruleset. Safe to call from several threads."""

    @property
    def device(self) -> str:
        """The device kernels run on, such as ``cpu`` or ``cuda:0``."""

    @property
    def ruleset(self) -> Ruleset:
        """The rules its verdicts follow; `Verdict.ruleset` carries the label."""

    def evaluate(self, problem: Problem, kernel: Kernel) -> Verdict:
        """Judge one kernel. A failure of the judge is an `unavailable` verdict, not an error."""

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many; yields (index of the job, verdict) as they come."""

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many; one verdict per job, in the order of the jobs."""

    def close(self) -> None:
        """Free processes and files. Closing twice is harmless."""
