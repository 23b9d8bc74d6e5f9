"""Chooses the problems of a step: a curriculum over buckets, and refills for groups without signal.

A bucket is what counts as the same difficulty: family, level and shape class. A procedural problem
is seen once, so rates are kept per bucket. Contract:

- what is drawn follows from the run's seed, the seed epoch, the step, the round and the state; a
  sampler that loads another's state draws what the other would have drawn;
- the state is plain JSON, and is refused by a sampler over other problems or of another seed;
- the solve rate is that of first answers, over every trajectory that was judged, kept or not;
- within a bucket no problem comes a second time before all have come once.

What a step's reward is, `kernelgym.rewards.RewardSchedule` says, which needs no state. Nothing here
plays, and nothing decides what is learned: `kernelgym_train.credit.credit` does.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import PositiveInt

from kernelgym.errors import UsageError
from kernelgym.suites.synthetic import canonical_form
from kernelgym.types import Problem
from kernelgym_train.credit.credit import counts
from kernelgym_train.metrics.guards import Share
from kernelgym_train.types import Rollout

_STATE = 1
_LEAST_TRIES = 8
"""Number of first answers after which a bucket's solve rate counts as known."""


class Bucket(NamedTuple):
    """Problems of one family, level and shape class, which count as equally hard."""

    level: int
    family: str
    shape: str

    def __str__(self) -> str:
        return f"L{self.level}/{self.family}/{self.shape}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Settings of how the problems of a step are drawn.

    `kernelgym_train.config.config.load_config` checks the values against the types of the fields.

    Raises:
        UsageError: If target_low is above target_high.
    """

    enabled: bool = True
    """Whether problems are drawn by their solve rates; if False, every problem is equally
    likely."""
    target_low: Share = 0.3
    """Solve rate below which buckets are drawn less often."""
    target_high: Share = 0.7
    """Solve rate above which buckets are drawn only as replay."""
    least: Share = 0.1
    """Weight of a bucket that is never solved; one inside the target has weight 1."""
    replay: Share = 0.1
    """Share of draws from buckets above the target, which shows when a solved bucket is
    forgotten."""
    unlock_at: Share = 0.5
    """Solve rate of a level at which problems of the next level are drawn too."""
    unlock_after: PositiveInt = 32
    """Smallest number of first answers on a level before the next level is drawn."""
    half_life: PositiveInt = 64
    """Number of first answers of a bucket after which an older answer counts half."""

    def __post_init__(self) -> None:
        if self.target_low > self.target_high:
            raise UsageError(
                f"curriculum.target_low ({self.target_low}) is above target_high "
                f"({self.target_high})"
            )


@dataclass(slots=True)
class _Record:
    """Solve counts of a bucket, which fade with a half-life."""

    drawn: int = 0
    seen: int = 0
    tries: float = 0.0
    solved: float = 0.0

    @property
    def rate(self) -> float | None:
        """Solve rate of the bucket; None while too few answers are known."""
        return self.solved / self.tries if self.seen >= _LEAST_TRIES else None

    def add(self, right: bool, half_life: int) -> None:
        keep = 0.5 ** (1.0 / half_life)
        self.seen += 1
        self.tries = self.tries * keep + 1.0
        self.solved = self.solved * keep + right


class ProblemSampler:
    """Draws the problems of each step, by solve rates that it learns from rollouts.

    Args:
        problems: Problems that can be drawn.
        seed: The run's seed.
        curriculum: Settings of how problems are drawn.

    Raises:
        UsageError: If there are no problems, or one is there twice.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        seed: int,
        curriculum: Curriculum | None = None,
    ) -> None:
        if not problems:
            raise UsageError("there is no problem to train on; drop a condition of its choice")
        if len({problem.id for problem in problems}) < len(problems):
            raise UsageError("a problem to train on is there twice; name each one once")
        self.seed = seed
        self.seed_epoch = 0
        """Number that goes up when a run is rolled back, so that the run does not draw the same
        problems again."""
        self.curriculum = Curriculum() if curriculum is None else curriculum
        self._buckets: dict[Bucket, list[Problem]] = {}
        self._bucket_of: dict[str, Bucket] = {}
        for problem in problems:
            bucket = bucket_of(problem)
            self._buckets.setdefault(bucket, []).append(problem)
            self._bucket_of[problem.id] = bucket
        self._buckets = dict(sorted(self._buckets.items()))
        self._records = {bucket: _Record() for bucket in self._buckets}
        self._levels = sorted({bucket.level for bucket in self._buckets})
        self._unlocked = 1
        self._last = (-1, 0)

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels whose problems are drawn at present."""
        on = self.curriculum.enabled
        return tuple(self._levels[: self._unlocked] if on else self._levels)

    @property
    def solve_rates(self) -> dict[Bucket, float | None]:
        """Solve rate of every bucket; None where too few answers are known."""
        return {bucket: record.rate for bucket, record in self._records.items()}

    def draw(self, step: int, count: int, round: int = 0) -> tuple[Problem, ...]:
        """Draw problems for one round of one step.

        Args:
            step: The training step, from 0.
            count: Number of problems to draw.
            round: 0, and 1 and up for refills.

        Raises:
            ValueError: If this round, or a later one, was drawn already: a state must be loaded to
                draw it again.
        """
        if (step, round) <= self._last:
            raise ValueError(f"step {step}, round {round} was drawn already, up to {self._last}")
        self._last = (step, round)
        chance = random.Random(f"{self.seed}/{self.seed_epoch}/{step}/{round}")
        return tuple(self._next_of(self._choose(chance)) for _ in range(count))

    def record(self, rollouts: Iterable[Rollout]) -> None:
        """Update the solve rates from all rollouts of a step, groups without signal included.

        Raises:
            ValueError: If a problem is not one of the sampler's.
        """
        for rollout in sorted(rollouts, key=lambda each: each.key):
            bucket = self._bucket_of.get(rollout.trajectory.problem.id)
            if bucket is None:
                raise ValueError(
                    f"{rollout.trajectory.problem.id!r} is not one of this sampler's problems"
                )
            if counts(rollout):
                right = rollout.trajectory.turns[0].verdict.correct
                self._records[bucket].add(right, self.curriculum.half_life)
        while self._unlocked < len(self._levels) and self._is_learned(self.levels[-1]):
            self._unlocked += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state, as plain JSON data."""
        return {
            "version": _STATE,
            "seed": self.seed,
            "problems": self._digest(),
            "seed_epoch": self.seed_epoch,
            "last": list(self._last),
            "unlocked": self._unlocked,
            "buckets": {
                str(bucket): [record.drawn, record.seen, record.tries, record.solved]
                for bucket, record in self._records.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from another sampler's state.

        Raises:
            UsageError: If it is that of a sampler over other problems or of another seed.
        """
        for name, mine in (
            ("version", _STATE),
            ("seed", self.seed),
            ("problems", self._digest()),
        ):
            if state.get(name) != mine:
                raise UsageError(
                    f"the checkpoint's sampler has {name} {state.get(name)!r}, this run {mine!r}; "
                    "resume with the configuration and the problems it was made with"
                )
        records = {bucket: _Record(*state["buckets"][str(bucket)]) for bucket in self._buckets}
        step, round = state["last"]
        self._records, self._last = records, (step, round)
        self._unlocked, self.seed_epoch = state["unlocked"], state["seed_epoch"]

    def _choose(self, chance: random.Random) -> Bucket:
        rule, levels = self.curriculum, self.levels
        weights = {b: float(len(self._buckets[b])) for b in self._buckets if b.level in levels}
        # Two numbers a draw, whatever comes of them.
        replayed, place = chance.random() < rule.replay, chance.random()
        if rule.enabled:
            rates = {bucket: self._records[bucket].rate for bucket in weights}
            mastered = {b for b, rate in rates.items() if rate and rate > rule.target_high}
            if mastered and (replayed or len(mastered) == len(weights)):
                weights = {b: weight for b, weight in weights.items() if b in mastered}
            else:
                weights = {
                    b: weight * self._interest(rates[b])
                    for b, weight in weights.items()
                    if b not in mastered
                }
        return _pick(weights, place)

    def _interest(self, rate: float | None) -> float:
        low, least = self.curriculum.target_low, self.curriculum.least
        if rate is None or rate >= low:
            return 1.0
        return least + (1.0 - least) * rate / low

    def _next_of(self, bucket: Bucket) -> Problem:
        record, problems = self._records[bucket], self._buckets[bucket]
        turn, place = divmod(record.drawn, len(problems))
        record.drawn += 1
        salt = f"{self.seed}/{self.seed_epoch}/{bucket}/{turn}"
        return sorted(problems, key=lambda problem: _hash(f"{salt}/{problem.id}"))[place]

    def _is_learned(self, level: int) -> bool:
        records = {b: self._records[b] for b in self._buckets if b.level == level}
        if sum(record.seen for record in records.values()) < self.curriculum.unlock_after:
            return False
        known = [(len(self._buckets[b]), record.rate) for b, record in records.items()]
        rated = [(size, rate) for size, rate in known if rate is not None]
        size = sum(size for size, _ in rated)
        solved = math.fsum(size * rate for size, rate in rated)
        return size > 0 and solved / size >= self.curriculum.unlock_at

    def _digest(self) -> str:
        every = [f"{b}\0{p.id}\0{p.digest}" for b, ps in self._buckets.items() for p in ps]
        return _hash("\n".join(sorted(every)))[:16]


def bucket_of(problem: Problem) -> Bucket:
    """Return the bucket that a problem belongs to."""
    return Bucket(problem.level, problem.family, shape_class(problem))


def shape_class(problem: Problem) -> str:
    """Return the class of shapes that a suite gives a problem; empty if it gives none.

    Synthetic tells one of its single operators, such as ``rank 2 wide``; elsewhere shapes go with
    the problem.
    """
    if problem.suite != "Synthetic" or problem.level != 1:
        return ""
    return canonical_form(problem).rpartition(" | ")[2]


def _pick(weights: Mapping[Bucket, float], place: float) -> Bucket:
    """Return the bucket at a place in [0, 1) when all weights are laid end to end."""
    total = math.fsum(weights.values())
    if not total:  # all of them of no interest
        weights, total = dict.fromkeys(weights, 1.0), float(len(weights))
    reached = 0.0
    for bucket, weight in weights.items():
        reached += weight / total
        if place < reached:
            return bucket
    return next(reversed(list(weights)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
