"""The nouns of kernelgym: frozen, slotted dataclasses that every module shares.

Nothing here does IO or imports anything outside the standard library. A record that crosses a
process or a file goes through `to_dict` / `Verdict.from_dict`: plain JSON, no NaN, no pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, TypeVar, runtime_checkable

from kernelgym.capabilities import Capabilities, EvaluatorStatus
from kernelgym.returns import (
    GAMMA,
    RETURN_VARIANTS,
    ReturnVariant,
    discounted_returns,
    return_variant,
)
from kernelgym.verdict import (
    Build,
    BuiltFunction,
    Finding,
    KernelTime,
    Mismatch,
    Profile,
    Severity,
    Status,
    Timing,
    Verdict,
)

__all__ = [
    "GAMMA",
    "RETURN_VARIANTS",
    "Answer",
    "Build",
    "BuiltFunction",
    "Capabilities",
    "Ended",
    "Evaluator",
    "EvaluatorStatus",
    "Feedback",
    "Finding",
    "Job",
    "Kernel",
    "KernelTime",
    "Message",
    "Mismatch",
    "Problem",
    "Profile",
    "Reply",
    "ReturnVariant",
    "Score",
    "Severity",
    "Status",
    "Timing",
    "Trajectory",
    "Turn",
    "Verdict",
    "discounted_returns",
    "return_variant",
    "text_digest",
]

Ability = TypeVar("Ability")


def text_digest(text: str) -> str:
    """Return 16 hex digits of SHA-256; lone surrogates (legal in model text) are kept apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class Answer(str):
    """An answer's text that can say that a limit cut it off.

    It is a `str` wherever one is taken: spaces, wrappers and vector environments pass it on as it
    is, and it is equal to its text. Copying and pickling keep the mark. A string made of it
    (``str(answer)``, ``answer.strip()``) is a plain one, without a mark.
    """

    __slots__ = ("_cut_off",)
    _cut_off: bool

    def __new__(cls, text: str = "", cut_off: bool = False) -> Self:
        """Return the text as an answer that knows whether a limit cut it off.

        Args:
            text: The model's text.
            cut_off: Whether sampling stopped at a limit of tokens before the model ended its
                answer. That is a defect of the form, even if a kernel can be read.
        """
        self = super().__new__(cls, text)
        self._cut_off = bool(cut_off)
        return self

    @property
    def cut_off(self) -> bool:
        """True if sampling stopped at a limit of tokens."""
        return self._cut_off

    def __reduce__(self) -> tuple[type[Self], tuple[str, bool]]:
        # Without it, old protocols refuse the slot, and AsyncVectorEnv sends answers as pickles.
        return type(self), (str(self), self._cut_off)


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
    """Source text of the reference module."""
    family: str = ""
    """Operator family, such as ``matmul``; splits keep a family on one side."""
    digest: str = field(init=False, repr=False)
    """First 16 hex digits of the SHA-256 of `source`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", text_digest(self.source))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A candidate: a Python module that defines ``ModelNew`` (same constructor and `forward`)."""

    source: str
    """Source text of the module."""
    language: str
    """Name of the language, one of `kernelgym.languages.LANGUAGES`."""
    digest: str = field(init=False, repr=False)
    """First 16 hex digits of the SHA-256 of language and source."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", text_digest(f"{self.language}\0{self.source}"))


@dataclass(frozen=True, slots=True)
class Reply:
    """Kernel and notes that were read from a model's text."""

    kernel: Kernel | None
    """Last well-formed kernel in the text; None if there is none."""
    thought: str = ""
    """Text of the thinking blocks, joined."""
    defects: tuple[str, ...] = ()
    """Defects of the text's form; empty for a clean answer."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback to the model about its last answer. ``str(feedback)`` is the text it reads."""

    category: str
    """Name of the category: ``format, policy, compile, runtime, memory, timeout, numerics, success,
    ...``"""
    headline: str
    detail: str = ""
    hint: str = ""
    gist: str = ""
    """Detail in a few words, for a list of attempts; it is not part of the text."""

    def __str__(self) -> str:
        return "\n\n".join(part for part in (self.headline, self.detail, self.hint) if part)


@dataclass(frozen=True, slots=True)
class Score:
    """Reward of one turn, with its parts."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Weighted parts by name, which add up to `total` unless a floor or a cap applied."""
    valid: bool = True
    """Whether the turn could be scored; False after a failure of the judge or the evaluator, where
    `total` means little."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of an episode, with its verdict, score and feedback."""

    index: int
    """Index of the turn, from 0."""
    action: str
    """Text of the model, as it was given."""
    reply: Reply
    verdict: Verdict
    feedback: Feedback
    score: Score


Ended = Literal["", "solved", "budget", "no_improvement", "cut"]
"""Reason why an episode ended; empty while it goes on, ``cut`` if something outside ended it."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode: a problem and the turns played on it."""

    problem: Problem
    turns: tuple[Turn, ...] = ()
    ended: Ended = ""
    horizon: int = 1
    """Number of turns that the episode allows."""

    @property
    def scores(self) -> tuple[float, ...]:
        """Score totals, one per turn played."""
        return tuple(turn.score.total for turn in self.turns)

    @property
    def valid(self) -> bool:
        """Whether every turn was judged and scored; trainers drop an episode where one was not."""
        return all(turn.verdict.valid and turn.score.valid for turn in self.turns)

    @property
    def best(self) -> Turn | None:
        """The turn with the highest score, the earliest on a tie; None before the first turn."""
        return max(self.turns, key=lambda turn: turn.score.total, default=None)

    def returns(self, gamma: float = GAMMA, variant: ReturnVariant = "sum") -> tuple[float, ...]:
        """Return the discounted return from each turn played on.

        An episode that ended solved is absorbing: its last score repeats up to the horizon, so
        that solving earlier never pays less than solving later.

        Args:
            gamma: Discount factor in [0, 1].
            variant: ``sum`` or ``max``; see `kernelgym.returns`.

        Returns:
            One float per turn played.

        Raises:
            ValueError: If `gamma` lies outside [0, 1], or there is no such variant.
        """
        horizon = self.horizon if self.ended == "solved" else None
        return discounted_returns(self.scores, gamma, horizon=horizon, variant=variant)


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to be judged on one problem."""

    problem: Problem
    kernel: Kernel


@runtime_checkable
class Evaluator(Protocol):
    """Judges kernels by one ruleset on one kind of device. Safe to call from several threads.

    `kernelgym.evaluators.base.EvaluatorBase` derives the rest from `capabilities` and `submit`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the evaluator as it is now: rules, devices, isolation."""

    @property
    def status(self) -> EvaluatorStatus:
        """Counts that the evaluator has kept so far."""

    def ability(self, kind: type[Ability]) -> Ability | None:
        """Return an object with an optional ability; None if the evaluator lacks it.

        Args:
            kind: A protocol of `kernelgym.evaluators.abilities`, such as ``Builds``.
        """

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a job's verdict, without waiting for it."""

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel. A failure of the judge is an `unavailable` verdict, not an error.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: Hexadecimal secret that inputs and weights follow from; empty to draw one. With a
                seed the kernel is judged now: no cache and no log answers, and none keeps the
                verdict. `Verdict.seed` of an earlier verdict repeats it.
        """

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many kernels; yields (index of the job, verdict) as they come."""

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many kernels; returns one verdict per job, in the order of the jobs."""

    def close(self) -> None:
        """Free processes and files. Closing twice is harmless."""
