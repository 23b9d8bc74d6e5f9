"""Outcome of an episode: the verdict of its first answer, and that of its best turn.

Contract: pure. A failure of the judge or the provider counts neither for nor against a model:

- a first answer that was not judged (`unavailable`) has no `first`;
- an episode that was cut, or holds a turn that was not judged, has no `best`, even if an earlier
  turn was correct: counting only the successful ones of these episodes would bias the rate upwards.

The best turn is the fastest correct one. Its speedup is the largest of several measurements and so
biased upwards; where its kernel was measured again, the second verdict counts, correct or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelgym.types import Evaluator, Trajectory, Turn, Verdict


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """Verdicts of an episode that rates and speeds count."""

    problem: str
    level: int
    family: str = ""
    first: Verdict | None = None
    """Verdict of the first answer; None if it was not judged."""
    best: Verdict | None = None
    """Verdict of the best turn; None if the episode was cut or a turn of it was not judged."""
    confirmed: bool = False
    """True if `best` is a second measurement, or the verdict of the only timed turn."""

    def verdict(self, within: bool) -> Verdict | None:
        """Return `best` if the whole episode counts, else `first`."""
        return self.best if within else self.first


def whole(trajectory: Trajectory) -> bool:
    """Return True if an episode was judged to its end."""
    return bool(trajectory.turns) and trajectory.valid and trajectory.ended != "cut"


def winner(turns: Iterable[Turn]) -> Turn:
    """Return the best turn: correct, then the fastest, then the earliest.

    Raises:
        ValueError: If there is none.
    """
    return max(turns, key=lambda turn: (turn.verdict.correct, turn.verdict.speedup))


def measured_again(trajectory: Trajectory, again: Evaluator | None) -> Verdict:
    """Return the best turn's verdict, from a second measurement if it was timed.

    Args:
        trajectory: The episode, of one turn at least.
        again: Evaluator without the first verdict in a cache; None to keep the first verdict.
    """
    best = winner(trajectory.turns)
    kernel = best.reply.kernel
    if again is None or kernel is None or not best.verdict.timed:
        return best.verdict
    return again.evaluate(trajectory.problem, kernel)


def outcome_of(trajectory: Trajectory, second: Verdict | None = None) -> EpisodeOutcome:
    """Return the outcome of an episode.

    Args:
        trajectory: The episode; one without turns has no verdicts.
        second: Second verdict of the best turn's kernel; None if there is none.
    """
    problem, turns = trajectory.problem, trajectory.turns
    first = turns[0].verdict if turns and turns[0].verdict.valid else None
    best, confirmed = None, False
    if whole(trajectory):
        best = winner(turns).verdict
        confirmed = sum(turn.verdict.timed for turn in turns) <= 1
        if second is not None and second.valid:
            best, confirmed = second, True
    return EpisodeOutcome(problem.id, problem.level, problem.family, first, best, confirmed)


def by_problem(
    outcomes: Iterable[EpisodeOutcome],
    key: Callable[[EpisodeOutcome], str] = lambda outcome: outcome.problem,
) -> Mapping[str, Sequence[EpisodeOutcome]]:
    """Return outcomes in groups, in the order in which groups first appear."""
    groups: dict[str, list[EpisodeOutcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[key(outcome)].append(outcome)
    return groups
