"""Scores of held-out episodes: rates, pass@k, second turns, and kinds of failures.

Contract: pure functions of rollouts. Episodes that do not count are left out
(`kernelgym_train.credit.credit.counts`). Rates of answers are of first answers, unless said
otherwise. `retry` is how often the next turn repairs a failed one; `blind` is how often
another first answer to the same problem would have been right instead, estimated from the problem's
other episodes. Only what exceeds that was learned from the feedback.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelgym.benchmark.numbers.intervals import RateEstimate, cluster_rate
from kernelgym.benchmark.numbers.outcomes import outcome_of
from kernelgym.benchmark.numbers.rates import correct_rate, pass_rate
from kernelgym.benchmark.numbers.taxonomy import blind_rate, failure_of, repair_rate
from kernelgym.types import Status, Trajectory
from kernelgym_train.credit.credit import counts
from kernelgym_train.types import Rollout

PASS_AT = (1, 4, 16)
"""Values of k in pass@k."""


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
    """Share of wrong answers that the next answer repairs."""
    blind: RateEstimate | None
    """Share of wrong first answers for which another episode's first answer is right."""
    cheats: RateEstimate | None
    """Share of first answers that screening or evidence refuses."""
    parsed: RateEstimate | None
    """Share of first answers that hold a kernel."""
    failures: Mapping[str, int]
    """Number of first answers of each kind: right, or the kind of failure; see `failure_of`."""
    tokens_per_answer: float
    """Mean number of tokens of a first answer."""


def scores_of(
    sampled: Iterable[Rollout], greedy: Iterable[Rollout] = (), *, pass_at: Sequence[int] = PASS_AT
) -> Scores:
    """Return the scores of the episodes on one table's problems."""
    sampled = [rollout for rollout in sampled if counts(rollout)]
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for rollout in sampled:
        groups[rollout.trajectory.problem.id].append(rollout.trajectory)
    outcomes = [outcome_of(played) for group in groups.values() for played in group]
    single = [outcome_of(rollout.trajectory) for rollout in greedy if counts(rollout)]
    firsts = [[played.turns[0] for played in group] for group in groups.values()]
    tokens = [len(one.ids) for rollout in sampled for one in rollout.completions[:1]]
    at = {k: rate for k in pass_at if (rate := pass_rate(outcomes, k)) is not None}
    refused = [sum(turn.verdict.status is Status.REJECTED for turn in some) for some in firsts]
    parsed = [sum(turn.reply.kernel is not None for turn in some) for some in firsts]
    sizes = [len(some) for some in firsts]
    return Scores(
        problems=len(groups),
        n=len(sampled),
        sampled=correct_rate(outcomes),
        greedy=correct_rate(single),
        pass_at=at,
        within=correct_rate(outcomes, within=True),
        retry=repair_rate(groups),
        blind=blind_rate(groups),
        cheats=cluster_rate([*zip(refused, sizes, strict=True)]),
        parsed=cluster_rate([*zip(parsed, sizes, strict=True)]),
        failures=dict(Counter(failure_of(turn) for some in firsts for turn in some)),
        tokens_per_answer=sum(tokens) / max(1, len(tokens)),
    )
