"""The nouns of kernelgym: frozen, slotted dataclasses that every module shares.

Nothing here does IO or imports anything outside the standard library. A record that crosses a
process or a file goes through `to_dict` / `Verdict.from_dict`: plain JSON, no NaN, no pickle.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, Self, runtime_checkable

from kernelgym.rulesets import Ruleset

__all__ = [
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


class Severity(StrEnum):
    """How much a finding weighs."""

    INFO = "info"
    """Worth knowing; nobody's fault."""
    SOFT = "soft"
    """Suspicious or wasteful; reported, not refused."""
    HARD = "hard"
    """Refused: the verdict is `rejected`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about a kernel, from screening or from the judge."""

    code: str
    """Stable snake_case name, such as ``torch_compute_call``."""
    message: str
    """One sentence for a reader."""
    severity: Severity = Severity.SOFT
    line: int = 0
    """1-based line in the kernel's source; 0 if it has no place there."""


class Status(StrEnum):
    """What became of one kernel. No code orders these: compare by name only."""

    NO_KERNEL = "no_kernel"
    """The text held no kernel."""
    REJECTED = "rejected"
    """A hard finding: the kernel breaks a rule of the ruleset."""
    COMPILE_ERROR = "compile_error"
    """It did not compile or load, or defines no `ModelNew`."""
    RUNTIME_ERROR = "runtime_error"
    """It raised, crashed or overran a limit while running."""
    TIMEOUT = "timeout"
    """It was still running at its deadline."""
    WRONG = "wrong"
    """It ran, and an output differs from the reference's."""
    CORRECT = "correct"
    """Every judged call agreed with the reference."""
    UNAVAILABLE = "unavailable"
    """The judge failed; says nothing about the kernel, and trainers drop it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast a correct kernel ran beside the reference. Times are in milliseconds."""

    kernel_ms: float
    """Median time of one call of the kernel."""
    reference_ms: float
    """Median time of one call of the reference."""
    speedup: float
    """`reference_ms` over `kernel_ms`."""
    speedup_low: float
    """Lower end of the 95 % interval of the speedup; rewards use it."""
    samples: int
    """Number of paired measurements."""
    baseline: str = "eager"
    """What the reference ran as: ``eager`` or ``compile``."""

    def __post_init__(self) -> None:
        numbers = (self.kernel_ms, self.reference_ms, self.speedup, self.speedup_low)
        if not all(math.isfinite(value) and value > 0 for value in numbers):
            raise ValueError(f"a Timing needs finite positive numbers, got {numbers}")
        if self.speedup_low > self.speedup:
            raise ValueError(f"speedup_low {self.speedup_low} is above speedup {self.speedup}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says of one kernel."""

    status: Status
    compiled: bool = False
    """It built, loaded and was constructed."""
    trials_passed: int = 0
    """Judged calls whose output agreed."""
    trials: int = 0
    """Judged calls made (or planned, if one ended the run)."""
    max_abs_error: float = 0.0
    """Largest absolute error over all judged calls; 0.0 if none was compared or none is finite."""
    max_rel_error: float = 0.0
    """Largest error relative to the reference's magnitude; same convention."""
    timing: Timing | None = None
    """Present only for a correct kernel on a device and language that can be timed."""
    findings: tuple[Finding, ...] = ()
    message: str = ""
    """One or a few lines: what happened, without traceback noise."""
    log: str = ""
    """Compiler output, or the kernel's own stdout and stderr; bounded."""
    device: str = ""
    isolation: str = ""
    """The sandbox tier it ran in, such as ``ns+landlock+seccomp``; empty if nothing was run."""
    ruleset: str = ""
    """Name and digest of the ruleset, such as ``strict@1f0c2a77``."""
    seed: str = ""
    """The secret seed of this verdict, revealed afterwards so that it can be repeated."""
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        if self.timing is not None and self.status is not Status.CORRECT:
            raise ValueError(f"only a correct verdict can carry a timing, not {self.status.value}")
        if self.status is Status.CORRECT and not (
            self.compiled and 0 < self.trials == self.trials_passed
        ):
            raise ValueError("a correct verdict needs compiled=True and all of its trials passed")
        if not 0 <= self.trials_passed <= self.trials:
            raise ValueError(f"{self.trials_passed} of {self.trials} trials passed")
        if not (math.isfinite(self.max_abs_error) and math.isfinite(self.max_rel_error)):
            raise ValueError("errors must be finite (use 0.0 and say so in the message)")

    @property
    def correct(self) -> bool:
        """True if the kernel passed."""
        return self.status is Status.CORRECT

    @property
    def valid(self) -> bool:
        """False if the judge failed, so that the verdict says nothing about the kernel."""
        return self.status is not Status.UNAVAILABLE

    @property
    def timed(self) -> bool:
        """True if there is a timing."""
        return self.timing is not None

    @property
    def speedup(self) -> float:
        """Speedup over the reference; 0.0 if untimed."""
        return self.timing.speedup if self.timing else 0.0

    @property
    def speedup_low(self) -> float:
        """Lower end of the speedup's 95 % interval; 0.0 if untimed."""
        return self.timing.speedup_low if self.timing else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data; derived values (`correct`, `timed`, ...) are included."""
        data = dataclasses.asdict(self)
        data["status"] = self.status.value
        data["findings"] = [{**f, "severity": f["severity"].value} for f in data["findings"]]
        derived = ("correct", "valid", "timed", "speedup", "speedup_low")
        return data | {name: getattr(self, name) for name in derived}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a verdict from `to_dict`'s output.

        Raises:
            ValueError: If a value breaks an invariant or a name is unknown.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        values = {key: value for key, value in data.items() if key in names}
        values["status"] = Status(values["status"])
        values["findings"] = tuple(
            Finding(f["code"], f["message"], Severity(f["severity"]), f["line"])
            for f in values.get("findings", ())
        )
        if values.get("timing") is not None:
            values["timing"] = Timing(**values["timing"])
        return cls(**values)


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
