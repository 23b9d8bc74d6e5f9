"""Runs beside each other, and our verdicts beside what another harness claimed.

Contract: pure; each function returns HTML. Comparisons are made before
(`kernelgym.benchmark.comparison`): what cannot be compared never gets here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence

from kernelgym.benchmark.claims import Claim, compare
from kernelgym.benchmark.comparison import Comparison
from kernelgym.benchmark.numbers.outcomes import winner
from kernelgym.benchmark.numbers.paired import Paired
from kernelgym.benchmark.pages.charts import Dot, scatter
from kernelgym.benchmark.pages.code import code
from kernelgym.benchmark.pages.text import escaped, facts_table, table
from kernelgym.benchmark.pages.view import STATES, View, state_of, verdict_state
from kernelgym.benchmark.pages.wall import cell
from kernelgym.types import Verdict

__all__ = ["claimed", "compared"]

_MOST_NAMED = 60
_MOST_OPENED = 200
_FAR = 1.5
"""Claimed and measured speedups that differ by more than this factor are opened too."""


def compared(
    views: Sequence[View], comparisons: Sequence[Comparison], link: Callable[[str], str]
) -> list[str]:
    """Return the paired tables, a scatter of speedups, and where runs differ."""
    parts: list[str] = []
    by_name = {view.name: view for view in views}
    for each in comparisons:
        parts.append(f"<h3>{escaped(each.second)} against {escaped(each.first)}</h3>")
        parts += [f'<p class="quiet">{escaped(caution)}</p>' for caution in each.cautions]
        if each.only_first or each.only_second:
            parts.append(
                f"<p>{each.only_first} problems are in {escaped(each.first)} only, "
                f"{each.only_second} in {escaped(each.second)} only; they are left out here.</p>"
            )
        rows = [_row(key, name, found) for key, name, found in each.rows]
        columns = ["", each.first, each.second, "difference", "95 % interval", "wins", "losses"]
        parts.append(table([*columns, "ties", "sign test, p"], rows, kind="card"))
        one, other = by_name[each.first], by_name[each.second]
        dots = list(_dots(one, other, link))
        if dots:
            told = (f"speedup in {each.first}", f"speedup in {each.second}")
            parts.append(scatter(dots, x_name=told[0], y_name=told[1], diagonal=True))
        parts += _differing(each, one, other, link)
    return parts


def claimed(views: Sequence[View], link: Callable[[str], str]) -> list[str]:
    """Return what another harness said beside our verdicts, with each disagreement opened."""
    parts: list[str] = []
    for view in views:
        claims = view.run.claims
        if not claims:
            continue
        ours = {
            played.key: winner(played.turns).verdict for played in view.episodes if played.turns
        }
        differ = {key: compare(claim, ours.get(key)) for key, claim in claims.items()}
        counted: dict[str, int] = {}
        for told in differ.values():
            counted[told or "both agree"] = counted.get(told or "both agree", 0) + 1
        rows = [[escaped(told), str(n)] for told, n in sorted(counted.items(), key=_by_count)]
        parts.append(f"<h3>{escaped(view.name)}</h3>")
        warnings = sorted({warning for claim in claims.values() for warning in claim.warnings})
        parts += [f'<p class="limits">{escaped(warning)}</p>' for warning in warnings]
        parts.append(table(["claim and verdict", "kernels"], rows))
        dots = list(_claim_dots(view, ours, link))
        if dots:
            parts.append(
                scatter(dots, x_name="claimed speedup", y_name="measured speedup", diagonal=True)
            )
        opened = 0
        for key, claim in claims.items():
            far = _far_apart(claim, ours.get(key))
            if (not differ[key] and not far) or differ[key] == "not judged here":
                continue
            opened += 1
            if opened <= _MOST_OPENED:
                parts.append(_opened(view, claim, ours[key], differ[key] or far, link))
        if opened > _MOST_OPENED:
            parts.append(f"<p>{opened - _MOST_OPENED} more disagreements are not opened here.</p>")
    return parts


def _by_count(pair: tuple[str, int]) -> int:
    return -pair[1]


def _row(key: str, name: str, found: Paired) -> list[str]:
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
    return [escaped(name), *values, change, ends, *tail]


def _logs(view: View) -> dict[str, float]:
    found: dict[str, float] = {}
    for identity, group in view.groups.items():
        best = [each.outcome.best or each.outcome.first for each in group]
        logs = [math.log(verdict.speedup) for verdict in best if verdict and verdict.timed]
        if logs:
            found[identity] = math.fsum(logs) / len(logs)
    return found


def _dots(one: View, other: View, link: Callable[[str], str]) -> Iterator[Dot]:
    first, second = _logs(one), _logs(other)
    for identity in first.keys() & second.keys():
        x, y = math.exp(first[identity]), math.exp(second[identity])
        yield Dot(x, y, f"{identity}: {x:.3g}x and {y:.3g}x", 1, link(identity))


def _differing(
    found: Comparison, one: View, other: View, link: Callable[[str], str]
) -> Iterator[str]:
    """Yield the problems that one run solved more often."""
    for key, _, paired in found.rows:
        if key.startswith("log_"):
            continue
        rows, within = [], key.endswith("_within")
        for identity in [*paired.wins, *paired.losses][:_MOST_NAMED]:
            better = other.name if identity in paired.wins else one.name
            rows.append(
                [
                    f'<a href="{escaped(link(identity))}">{escaped(identity)}</a>',
                    escaped(better),
                    *(_cells(view, identity, within) for view in (one, other)),
                ]
            )
        what = "within the episode" if within else "first answer"
        told = f"Problems where they differ, {what}"
        if len(paired.wins) + len(paired.losses) > _MOST_NAMED:
            told += f" (the first {_MOST_NAMED})"
        yield table(["problem", "better", found.first, found.second], rows, caption=told)


def _cells(view: View, identity: str, within: bool) -> str:
    """Return a cell per sample: of its best turn, or of its first answer."""
    cells = []
    for played in view.groups.get(identity, ()):
        state = state_of(view, played)
        if not within and played.turns:
            state = verdict_state(played.turns[0].verdict)
        cells.append(cell(state, f"sample {played.sample}"))
    return " ".join(cells)


def _claim_dots(
    view: View, ours: dict[tuple[str, int], Verdict], link: Callable[[str], str]
) -> Iterator[Dot]:
    for key, claim in view.run.claims.items():
        verdict = ours.get(key)
        if claim.speedup and verdict is not None and verdict.timed:
            name = f"{key[0]} sample {key[1]}: {claim.speedup:.3g}x and {verdict.speedup:.3g}x"
            yield Dot(claim.speedup, verdict.speedup, name, 1, link(key[0]))


def _far_apart(claim: Claim, verdict: Verdict | None) -> str:
    if claim.speedup is None or verdict is None or not verdict.timed:
        return ""
    factor = claim.speedup / verdict.speedup
    if 1 / _FAR <= factor <= _FAR:
        return ""
    return f"claimed {claim.speedup:.3g}x, {verdict.speedup:.3g}x here"


def _opened(
    view: View, claim: Claim, verdict: Verdict, told: str, link: Callable[[str], str]
) -> str:
    key = (claim.problem, claim.sample)
    played = next(each for each in view.groups[claim.problem] if each.key == key)
    kernel = winner(played.turns).reply.kernel
    theirs: dict[str, object] = {
        "compiled": claim.compiled,
        "correct": claim.correct,
        "kernel ms": claim.runtime_ms,
        "reference ms": claim.reference_ms,
        "metadata": json.dumps(dict(claim.metadata), default=str)[:2000] if claim.metadata else "",
    }
    ours: dict[str, object] = {
        "status": STATES[verdict_state(verdict)][2],
        "speedup": f"{verdict.speedup:.3g}" if verdict.timed else "",
        "message": verdict.message[:2000],
        "findings": "; ".join(f"{each.code}: {each.message}" for each in verdict.findings)[:2000],
    }
    return (
        f'<details open class="problem"><summary>{escaped(claim.problem)} sample {claim.sample}: '
        f'{escaped(told)}</summary><p><a href="{escaped(link(claim.problem))}">The problem</a></p>'
        f'<div class="pair"><div><h4>Their verdict</h4>{facts_table(theirs)}</div>'
        f"<div><h4>Ours</h4>{facts_table(ours)}</div></div>"
        f"<details><summary>kernel</summary>{code(kernel.source) if kernel else ''}</details>"
        "</details>"
    )
