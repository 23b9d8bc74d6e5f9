"""A run's score card: headline numbers with intervals, table by table.

Contract: pure, except `degenerate_problems`, which looks up kept results of `kernelgym lint`. A
number without data is left out. Tables are: all problems; each level and each family, if there
are several; and each of them without problems that are known to be degenerate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym.benchmark.numbers.costs import judge_time, per_solved, spent
from kernelgym.benchmark.numbers.intervals import RateEstimate, cluster_rate
from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, by_problem
from kernelgym.benchmark.numbers.rates import correct_rate, fast_rate, pass_rate
from kernelgym.benchmark.numbers.roofline import RooflineLimit, mean_share, mean_sol_score
from kernelgym.benchmark.numbers.speeds import GeometricMean, geometric_mean
from kernelgym.benchmark.recorded_runs import RecordedRun
from kernelgym.errors import UsageError
from kernelgym.rulesets import recorded_ruleset
from kernelgym.types import Status, Verdict

_SPEEDS = (1.0, 1.5, 2.0)
_PASS_AT = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class CardNumber:
    """One number of a score card."""

    key: str
    """Name of the number in JSON, such as ``fast_1_certain``."""
    name: str
    """Name of the number for readers."""
    value: RateEstimate | GeometricMean
    distrusted: int = 0
    """Number of times in it that their own verdicts distrust, since the host was busy."""

    def __str__(self) -> str:
        of = f", {self.distrusted} of the times distrusted" if self.distrusted else ""
        return f"{self.value}{of}"

    @property
    def unit(self) -> str:
        """Name of the count beside the value: ``kernels`` of a geometric mean, ``n`` of a rate."""
        return "kernels" if isinstance(self.value, GeometricMean) else "n"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        found = self.value
        plain = {"value": found.value, "low": found.low, "high": found.high, "n": found.n}
        return plain | ({"distrusted": self.distrusted} if self.distrusted else {})


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts of problems, episodes and answers of a run."""

    problems: int
    """Number of planned problems; without a plan, of played ones."""
    answered: int
    """Number of problems with a judged answer."""
    episodes: int
    answers: int
    """Number of turns of all episodes for which the judge gave a valid verdict."""
    missing: int
    """Number of planned episodes that are missing or were cut."""
    timed: int
    """Number of answers with a time."""
    distrusted: int
    """Number of correct answers whose time is doubtful or missing, since the host was busy."""
    distrusted_untimed: int
    """Number of those that have no time at all."""
    unavailable: int
    """Number of turns on which the judge failed."""
    degenerate: int
    """Number of problems that a worthless kernel passes."""
    unconfirmed: int
    """Number of episodes whose speed is the largest of several measurements and not confirmed."""


def degenerate_problems(run: RecordedRun) -> dict[str, tuple[str, ...]]:
    """Return the problems of a run that worthless kernels pass, by id, with the reasons."""
    from kernelgym.suites.kernelbench_facts import degenerate
    from kernelgym.suites.known_hygiene import known_hygiene

    found: dict[str, tuple[str, ...]] = {}
    for played in run.episodes:
        problem = played.record.trajectory.problem
        if problem.id in found:
            continue
        try:
            rules = recorded_ruleset(played.record.ruleset)
            found[problem.id] = known_hygiene(problem, rules, played.record.device or "cpu").reasons
        except UsageError:  # rules that never shipped; the table still holds
            found[problem.id] = degenerate(problem.id, "own", problem.name)
    return {identity: reasons for identity, reasons in found.items() if reasons}


def counts(run: RecordedRun, degenerate: Mapping[str, object]) -> RunCounts:
    """Return the counts of problems, episodes and answers of a run."""
    verdicts = [turn.verdict for played in run.episodes for turn in played.turns]
    unconfirmed = sum(
        outcome.best is not None and outcome.best.timed and not outcome.confirmed
        for outcome in run.outcomes
    )
    return RunCounts(
        problems=len(run.planned),
        answered=len(
            {
                played.key[0]
                for played in run.episodes
                if any(turn.verdict.valid for turn in played.turns)
            }
        ),
        episodes=len(run.episodes),
        answers=sum(verdict.valid for verdict in verdicts),
        missing=len(run.missing),
        timed=sum(verdict.timed for verdict in verdicts),
        distrusted=sum(verdict.distrusted for verdict in verdicts),
        distrusted_untimed=sum(v.distrusted and not v.timed for v in verdicts),
        unavailable=sum(not verdict.valid for verdict in verdicts),
        degenerate=sum(identity in degenerate for identity in run.planned),
        unconfirmed=unconfirmed,
    )


def tables(run: RecordedRun, degenerate: Mapping[str, object]) -> dict[str, list[EpisodeOutcome]]:
    """Return outcomes by table: all, not degenerate, by level and family."""
    outcomes = run.outcomes
    found = {"all problems": outcomes}
    levels = by_problem(outcomes, lambda each: f"level {each.level}")
    families = by_problem((o for o in outcomes if o.family), lambda each: f"family {each.family}")
    for groups in (levels, families):
        if len(groups) > 1:
            found |= {name: list(groups[name]) for name in sorted(groups)}
    without: dict[str, list[EpisodeOutcome]] = {}
    for name, some in found.items():
        if any(each.problem in degenerate for each in some):
            kept = "" if some is outcomes else f"{name} "
            sound = [each for each in some if each.problem not in degenerate]
            without[f"{kept}without degenerate problems"] = sound
    return {name: some for name, some in (found | without).items() if some}


def numbers(
    outcomes: Sequence[EpisodeOutcome],
    *,
    turns: int = 1,
    limits: Mapping[str, RooflineLimit] | None = None,
) -> list[CardNumber]:
    """Return the score card of some episodes.

    Args:
        outcomes: The episodes.
        turns: Largest number of turns of an episode; with one, best turns are left out.
        limits: Roofline limits by problem id; None if the device's rates were not measured.
    """
    found: list[tuple[str, str, RateEstimate | GeometricMean | None]] = []
    for within in (False, True) if turns > 1 else (False,):
        tail = ", within the episode" if within else ""
        end = "_within" if within else ""
        right = "solved" if within else "correct, of all first answers"
        found.append((f"correct{end}", right + tail, correct_rate(outcomes, within=within)))
        for k in _PASS_AT:
            rate = pass_rate(outcomes, k, within=within)
            found.append((f"pass@{k}{end}", f"pass@{k}, mean over problems{tail}", rate))
        if not any(v.timed for v in _verdicts(outcomes, within)):
            continue
        for p in _SPEEDS:
            point = fast_rate(outcomes, p, within=within)
            certain = fast_rate(outcomes, p, within=within, certain=True)
            found.append((f"fast_{p:g}{end}", f"fast_{p:g}{tail}", point))
            found.append((f"fast_{p:g}_certain{end}", f"fast_{p:g}, certain{tail}", certain))
        mean = geometric_mean(outcomes, within=within)
        faster = geometric_mean(outcomes, within=within, faster=True)
        found.append((f"speedup{end}", f"geometric mean speedup of correct kernels{tail}", mean))
        found.append((f"speedup_faster{end}", f"... of those that are faster{tail}", faster))
        if limits:
            share = mean_share(outcomes, limits, within=within)
            score = mean_sol_score(outcomes, limits, within=within)
            name = "share of the roofline, correct kernels"
            found.append((f"roofline_share{end}", f"{name}{tail}", share))
            found.append((f"sol_score{end}", f"SOL score of correct kernels{tail}", score))
    for status, name in ((Status.REJECTED, "refused"), (Status.NO_KERNEL, "no kernel in it")):
        found.append((status.value, f"{name}, first answer", _status_rate(outcomes, status)))
    doubtful = {within: _distrusted(outcomes, within) for within in (False, True)}
    return [
        CardNumber(key, name, value, doubtful["_within" in key] if _uses_times(key) else 0)
        for key, name, value in found
        if value is not None
    ]


def _uses_times(key: str) -> bool:
    """Return True if a number may be computed from times that a busy host made doubtful."""
    return key.startswith(("fast_", "speedup", "roofline", "sol_")) and "_certain" not in key


def _distrusted(outcomes: Sequence[EpisodeOutcome], within: bool) -> int:
    return sum(found.timed and found.distrusted for found in _verdicts(outcomes, within))


def solved(run: RecordedRun) -> int:
    """Return the number of problems that a run solved: with a correct kernel in any turn."""
    return len(
        {
            played.key[0]
            for played in run.episodes
            if any(turn.verdict.correct for turn in played.turns)
        }
    )


def costs(run: RecordedRun) -> dict[str, float | None]:
    """Return tokens, money and judge seconds, in all and per solved problem."""
    answers = [each for played in run.episodes for each in played.answers.values()]
    used = spent(answers)
    judged = judge_time(turn.verdict for played in run.episodes for turn in played.turns)
    right = solved(run)
    return {
        "tokens": used.tokens,
        "usd": used.usd,
        "judge_s": judged.total_s,
        "tokens_per_solved": per_solved(used.tokens, right),
        "usd_per_solved": per_solved(used.usd, right),
        "judge_s_per_solved": per_solved(judged.total_s, right),
    }


def _verdicts(outcomes: Iterable[EpisodeOutcome], within: bool) -> list[Verdict]:
    return [found for each in outcomes if (found := each.verdict(within)) is not None]


def _status_rate(outcomes: Sequence[EpisodeOutcome], status: Status) -> RateEstimate | None:
    groups = (_verdicts(group, False) for group in by_problem(outcomes).values())
    return cluster_rate([(sum(v.status is status for v in group), len(group)) for group in groups])
