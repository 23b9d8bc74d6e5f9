"""Scores of held-out episodes: rates, pass@k, second turns, and kinds of failures.

Contract: pure functions of rollouts. Episodes that do not count are left out
(`kernelgym_train.credit.credit.counts`). Rates of answers are of first answers, unless said
otherwise. `retry` is how often a second turn repairs a failed first one; `blind` is how often
another first answer to the same problem would have been right instead, estimated from the problem's
other episodes. Only what exceeds that was learned from the feedback.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelgym.benchmark.numbers.intervals import RateEstimate, cluster_rate
from kernelgym.benchmark.numbers.rates import pass_at_k
from kernelgym.benchmark.numbers.taxonomy import failure_of
from kernelgym.types import Status, Trajectory, Turn
from kernelgym_train.credit.credit import counts
from kernelgym_train.types import Rollout

PASS_AT = (1, 4, 16)
"""Values of k."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the episodes of one held-out table; rates are None if no episode was played."""

    problems: int
    """Number of problems."""
    n: int
    """Number of first answers."""
    sampled: RateEstimate | None
    """Share of sampled first answers that are right."""
    greedy: RateEstimate | None
    """Share of greedy first answers that are right, one answer for each problem."""
    pass_at: Mapping[int, RateEstimate]
    """pass@k by k, without values of k above the number of episodes of a problem."""
    within: RateEstimate | None
    """Share of episodes with a right answer at any turn."""
    retry: RateEstimate | None
    """Share of second answers, after a wrong first one, that are right."""
    blind: RateEstimate | None
    """Share of those that would be right if another first answer were drawn instead."""
    cheats: RateEstimate | None
    """Share of first answers that screening or evidence refuses."""
    parsed: RateEstimate | None
    """Share of first answers that hold a kernel."""
    failures: Mapping[str, int]
    """Number of first answers by kind of failure; see `failure_of`."""
    tokens_per_answer: float
    """Mean number of tokens of a first answer."""


def scores_of(
    sampled: Iterable[Rollout], greedy: Iterable[Rollout] = (), *, pass_at: Sequence[int] = PASS_AT
) -> Scores:
    """Return what episodes on one table's problems came to."""
    sampled = [rollout for rollout in sampled if counts(rollout)]
    groups = _by_problem(sampled)
    first = {name: [played.turns[0] for played in group] for name, group in groups.items()}
    right = {name: sum(t.verdict.correct for t in turns) for name, turns in first.items()}
    single = _by_problem(rollout for rollout in greedy if counts(rollout))
    tokens = [len(one.ids) for rollout in sampled for one in rollout.completions[:1]]
    at: dict[int, RateEstimate] = {}
    for k in pass_at:
        enough = [(len(t), right[name]) for name, t in first.items() if len(t) >= k]
        if rate := cluster_rate([(pass_at_k(n, c, k), 1) for n, c in enough]):
            at[k] = rate
    return Scores(
        problems=len(groups),
        n=len(sampled),
        sampled=cluster_rate([(right[name], len(turns)) for name, turns in first.items()]),
        greedy=cluster_rate([(_firsts_right(group), len(group)) for group in single.values()]),
        pass_at=at,
        within=cluster_rate(
            [
                (sum(any(t.verdict.correct for t in p.turns) for p in group), len(group))
                for group in groups.values()
            ]
        ),
        retry=cluster_rate([_retried(group) for group in groups.values()]),
        blind=cluster_rate([_blind(right[name], len(turns)) for name, turns in first.items()]),
        cheats=cluster_rate([_share(turns, _cheats) for turns in first.values()]),
        parsed=cluster_rate([_share(turns, _parses) for turns in first.values()]),
        failures=dict(Counter(failure_of(turn) for turns in first.values() for turn in turns)),
        tokens_per_answer=sum(tokens) / max(1, len(tokens)),
    )


def _by_problem(rollouts: Iterable[Rollout]) -> dict[str, list[Trajectory]]:
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.trajectory.problem.id].append(rollout.trajectory)
    return groups


def _firsts_right(group: Sequence[Trajectory]) -> int:
    return sum(played.turns[0].verdict.correct for played in group)


def _retried(group: Sequence[Trajectory]) -> tuple[float, float]:
    """Return how many second turns after a failure are right, and how many there are."""
    failed = [played for played in group if not played.turns[0].verdict.correct]
    second = [played.turns[1] for played in failed if len(played.turns) > 1]
    return sum(turn.verdict.correct for turn in second), len(second)


def _blind(right: int, n: int) -> tuple[float, float]:
    """Return how many failed answers another draw is expected to replace, and how many failed."""
    failed = n - right
    return (failed * right / (n - 1), failed) if n > 1 else (0, 0)


def _share(turns: Sequence[Turn], holds: Callable[[Turn], bool]) -> tuple[float, float]:
    return sum(map(holds, turns)), len(turns)


def _cheats(turn: Turn) -> bool:
    return turn.verdict.status is Status.REJECTED


def _parses(turn: Turn) -> bool:
    return turn.reply.kernel is not None
