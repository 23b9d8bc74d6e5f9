"""Comparison of two runs, problem by problem.

Contract: pure. Runs are comparable if all of their verdicts follow one ruleset label, and the
problems that they share have equal sources; others are refused with the difference. Problems that
only one run has are left out and counted. Devices may differ, since each kernel was timed beside
the reference on its own device; `cautions` mentions it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelgym.benchmark.numbers.paired import PairedDifference, paired_rates, paired_speeds
from kernelgym.benchmark.recorded_runs import RecordedRun
from kernelgym.errors import UsageError


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Differences of a second run from a first one."""

    first: str
    second: str
    """Names of the runs."""
    rows: tuple[tuple[str, str, PairedDifference], ...]
    """Compared numbers: key in JSON, name for readers, and the difference."""
    only_first: int
    only_second: int
    """Number of problems that only the second run has."""
    cautions: tuple[str, ...]


def check_comparable(one: RecordedRun, other: RecordedRun) -> None:
    """Refuse to compare runs that were judged by different rules or on different problems.

    Raises:
        UsageError: If rules or problems differ; the message says which.
    """
    labels = [", ".join(run.rulesets) or "none" for run in (one, other)]
    if labels[0] != labels[1] or len(one.rulesets) > 1:
        raise UsageError(
            f"{one.name} was judged by ruleset {labels[0]} and {other.name} by {labels[1]}; "
            "verdicts of different rules are not compared: judge one of them by the other's rules, "
            "or report them one by one"
        )
    first, second = one.digests, other.digests
    common = [identity for identity in first if identity in second]
    if not common:
        raise UsageError(
            f"{one.name} and {other.name} have no problem in common; report them one by one"
        )
    changed = [identity for identity in common if first[identity] != second[identity]]
    if changed:
        shown = ", ".join(f"{each} ({first[each]} and {second[each]})" for each in changed[:3]) + (
            f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        )
        raise UsageError(
            f"{one.name} and {other.name} were played on different sources of {shown}; only runs "
            "on the same problems are compared: report them one by one"
        )


def compare_runs(one: RecordedRun, other: RecordedRun) -> RunComparison:
    """Return the differences of two runs, problem by problem.

    Raises:
        UsageError: If they cannot be compared.
    """
    check_comparable(one, other)
    first, second = one.outcomes, other.outcomes
    rows: list[tuple[str, str, PairedDifference]] = []
    turns = max(_turns(one), _turns(other))
    for within in (False, True) if turns > 1 else (False,):
        end, tail = ("_within", ", within the episode") if within else ("", ", first answer")
        rates = paired_rates(first, second, within=within)
        speeds = paired_speeds(first, second, within=within)
        if rates is not None:
            rows.append((f"correct{end}", f"pass@1, mean over problems{tail}", rates))
        if speeds is not None:
            rows.append((f"log_speedup{end}", f"log of the speedup, both correct{tail}", speeds))
    here, there = set(one.planned), set(other.planned)
    return RunComparison(
        one.name,
        other.name,
        tuple(rows),
        len(here - there),
        len(there - here),
        tuple(_cautions(one, other)),
    )


def _turns(run: RecordedRun) -> int:
    return max((each.record.trajectory.horizon for each in run.episodes), default=1)


def _cautions(one: RecordedRun, other: RecordedRun) -> Iterator[str]:
    for run in (one, other):
        if run.missing:
            total = len({each.key for each in run.episodes} | set(run.missing))
            yield (
                f"{run.name} lacks {len(run.missing)} of {total} episodes, which are in no rate: "
                "what is compared is the rest."
            )
    devices = [{each.record.device for each in run.episodes} for run in (one, other)]
    if devices[0] != devices[1]:
        yield (
            f"The devices differ: {', '.join(sorted(devices[0]))} and "
            f"{', '.join(sorted(devices[1]))}. Speedups were each measured beside the reference on "
            "its own device."
        )
    if _turns(one) != _turns(other):
        yield f"Episodes had {_turns(one)} and {_turns(other)} turns."
    languages = [{each.record.language for each in run.episodes} for run in (one, other)]
    if languages[0] != languages[1]:
        yield (
            f"The languages differ: {', '.join(sorted(languages[0]))} and "
            f"{', '.join(sorted(languages[1]))}."
        )
