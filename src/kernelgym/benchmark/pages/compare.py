"""Data of comparisons: runs beside each other, and verdicts beside another harness's claims.

Contract: pure; each function returns rows, or a chart as HTML. `kernelgym.benchmark.comparison`
refuses runs that cannot be compared before any of this is called.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kernelgym.benchmark.claims import Claim, compare
from kernelgym.benchmark.comparison import RunComparison
from kernelgym.benchmark.numbers.outcomes import winner
from kernelgym.benchmark.numbers.paired import PairedDifference
from kernelgym.benchmark.pages.charts import ScatterDot, scatter
from kernelgym.benchmark.pages.text import problem_link
from kernelgym.benchmark.pages.view import STATES, RunView, state_cell, state_of, verdict_state
from kernelgym.types import Kernel, Verdict

_MOST_NAMED = 60
_FAR = 1.5
"""Factor between claimed and measured speedup above which the claim is shown in full."""


@dataclass(frozen=True, slots=True)
class OpenedClaim:
    """A claim that is shown in full, beside our verdict."""

    claim: Claim
    differs: str
    """Description of the difference."""
    theirs: list[tuple[str, object]]
    """Facts of the claim: names and values."""
    ours: list[tuple[str, object]]
    """Facts of our verdict: names and values."""
    kernel: Kernel | None


@dataclass(frozen=True, slots=True)
class RunClaims:
    """A run's claims, compared with its verdicts."""

    warnings: list[str]
    counts: list[tuple[str, int]]
    """Ways in which claim and verdict differ or agree, each with its number of kernels."""
    opened: list[OpenedClaim]


def comparison_columns(found: RunComparison) -> list[str]:
    """Return the columns of `comparison_rows`."""
    differences = ["difference", "95 % interval", "wins", "losses", "ties", "sign test, p"]
    return ["", found.first, found.second, *differences]


def comparison_rows(found: RunComparison) -> list[list[str]]:
    """Return a row for each compared number: both values, difference, wins, losses, p-value."""
    return [_row(key, name, paired) for key, name, paired in found.rows]


def speed_scatter(
    found: RunComparison, views: Sequence[RunView], link: Callable[[str], str]
) -> str:
    """Return the chart of both runs' speedups, problem by problem."""
    one, other = _pair(found, views)
    first, second = _logs(one), _logs(other)
    dots = []
    for identity in first.keys() & second.keys():
        x, y = math.exp(first[identity]), math.exp(second[identity])
        dots.append(ScatterDot(x, y, f"{identity}: {x:.3g}x and {y:.3g}x", 1, link(identity)))
    names = (f"speedup in {found.first}", f"speedup in {found.second}")
    return scatter(dots, x_name=names[0], y_name=names[1], diagonal=True)


def differing(
    found: RunComparison, views: Sequence[RunView], link: Callable[[str], str]
) -> Iterator[tuple[str, list[list[object]]]]:
    """Yield caption and rows of the problems that one run solved more often."""
    one, other = _pair(found, views)
    for key, _, paired in found.rows:
        if key.startswith("log_"):
            continue
        within = key.endswith("_within")
        rows: list[list[object]] = [
            [
                problem_link(link, identity),
                other.name if identity in paired.wins else one.name,
                *(_cells(view, identity, within) for view in (one, other)),
            ]
            for identity in [*paired.wins, *paired.losses][:_MOST_NAMED]
        ]
        told = f"Problems where they differ, {'within the episode' if within else 'first answer'}"
        if len(paired.wins) + len(paired.losses) > _MOST_NAMED:
            told += f" (the first {_MOST_NAMED})"
        yield told, rows


def claimed(view: RunView) -> RunClaims:
    """Return a run's claims beside its verdicts."""
    claims, ours = view.run.claims, _verdicts(view)
    counts: Counter[str] = Counter()
    opened = []
    for key, claim in claims.items():
        differs = compare(claim, ours.get(key))
        counts[differs or "both agree"] += 1
        if key in ours and differs != "not judged here":
            if told := differs or _far_apart(claim, ours[key]):
                opened.append(_opened(view, claim, ours[key], told))
    warnings = sorted({warning for claim in claims.values() for warning in claim.warnings})
    return RunClaims(warnings, counts.most_common(), opened)


def claim_scatter(view: RunView, link: Callable[[str], str]) -> str:
    """Return the chart of claimed and measured speedups."""
    ours = _verdicts(view)
    dots = []
    for key, claim in view.run.claims.items():
        verdict = ours.get(key)
        if claim.speedup and verdict is not None and verdict.timed:
            name = f"{key[0]} sample {key[1]}: {claim.speedup:.3g}x and {verdict.speedup:.3g}x"
            dots.append(ScatterDot(claim.speedup, verdict.speedup, name, 1, link(key[0])))
    return scatter(dots, x_name="claimed speedup", y_name="measured speedup", diagonal=True)


def _pair(found: RunComparison, views: Sequence[RunView]) -> tuple[RunView, RunView]:
    by_name = {view.name: view for view in views}
    return by_name[found.first], by_name[found.second]


def _verdicts(view: RunView) -> dict[tuple[str, int], Verdict]:
    return {each.key: winner(each.turns).verdict for each in view.episodes if each.turns}


def _row(key: str, name: str, found: PairedDifference) -> list[str]:
    if key.startswith("log_"):
        values = [f"{math.exp(value):.3g}x" for value in (found.first, found.second)]
        change = f"times {math.exp(found.difference):.3g}"
        ends = f"{math.exp(found.low):.3g} to {math.exp(found.high):.3g}"
        name = name.replace("log of the speedup", "geometric mean speedup")
    else:
        values = [f"{100 * value:.1f} %" for value in (found.first, found.second)]
        change = f"{100 * found.difference:+.1f} points"
        ends = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
    tail = [str(len(found.wins)), str(len(found.losses)), str(found.ties), f"{found.p:.3g}"]
    return [name, *values, change, ends, *tail]


def _logs(view: RunView) -> dict[str, float]:
    found: dict[str, float] = {}
    for identity, group in view.groups.items():
        best = [each.outcome.best or each.outcome.first for each in group]
        logs = [math.log(verdict.speedup) for verdict in best if verdict and verdict.timed]
        if logs:
            found[identity] = math.fsum(logs) / len(logs)
    return found


def _cells(view: RunView, identity: str, within: bool) -> Markup:
    """Return an HTML cell for each sample: the state of its best turn, or of its first answer."""
    cells = []
    for played in view.groups.get(identity, ()):
        state = state_of(view, played)
        if not within and played.turns:
            state = verdict_state(played.turns[0].verdict)
        cells.append(state_cell(state, f"sample {played.sample}"))
    return Markup(" ").join(cells)


def _far_apart(claim: Claim, verdict: Verdict) -> str:
    if claim.speedup is None or not verdict.timed:
        return ""
    factor = claim.speedup / verdict.speedup
    if 1 / _FAR <= factor <= _FAR:
        return ""
    return f"claimed {claim.speedup:.3g}x, {verdict.speedup:.3g}x here"


def _opened(view: RunView, claim: Claim, verdict: Verdict, differs: str) -> OpenedClaim:
    key = (claim.problem, claim.sample)
    played = next(each for each in view.groups[claim.problem] if each.key == key)
    metadata = json.dumps(dict(claim.metadata), default=str)[:2000] if claim.metadata else ""
    findings = "; ".join(f"{each.code}: {each.message}" for each in verdict.findings)
    return OpenedClaim(
        claim,
        differs,
        [
            ("compiled", claim.compiled),
            ("correct", claim.correct),
            ("kernel ms", claim.runtime_ms),
            ("reference ms", claim.reference_ms),
            ("metadata", metadata),
        ],
        [
            ("status", STATES[verdict_state(verdict)][2]),
            ("speedup", f"{verdict.speedup:.3g}" if verdict.timed else ""),
            ("message", verdict.message[:2000]),
            ("findings", findings[:2000]),
        ],
        winner(played.turns).reply.kernel,
    )
