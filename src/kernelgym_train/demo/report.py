"""The report of a demonstration: a text table, and one HTML page.

Contract: pure functions of a `Demonstration`. The page is whole in itself (plain SVG, no script, no
font, nothing fetched), and says beside the numbers what they do not show. Its template is
report.html; every text of a model or a problem is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from kernelgym.benchmark.numbers.intervals import RateEstimate
from kernelgym.benchmark.pages.charts import bars, lines
from kernelgym.benchmark.pages.style import document
from kernelgym_train.demo.results import Demonstration
from kernelgym_train.demo.scores import Scores

_RIGHT = ("right at the first turn", "right within the episode", "parsed", "refused as cheating")
_TIMES = ("seconds of the model", "seconds of the judge", "seconds of the optimiser")
_MOST_FAILURES = 10


def score_rows(before: Scores, after: Scores) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the report: each number before and after training, rates with intervals."""
    yield "right, sampled", _told(before.sampled), _told(after.sampled)
    yield "right, greedy", _told(before.greedy), _told(after.greedy)
    for k in sorted(before.pass_at.keys() | after.pass_at.keys()):
        if k > 1:
            yield f"pass@{k}", _told(before.pass_at.get(k)), _told(after.pass_at.get(k))
    yield "right within the episode", _told(before.within), _told(after.within)
    yield "second turn after a failure", _told(before.retry), _told(after.retry)
    yield "... a blind second try", _told(before.blind), _told(after.blind)
    yield "refused as cheating", _told(before.cheats), _told(after.cheats)
    yield "parsed", _told(before.parsed), _told(after.parsed)
    yield "tokens per answer", f"{before.tokens_per_answer:.0f}", f"{after.tokens_per_answer:.0f}"
    yield "problems, answers", f"{before.problems}, {before.n}", f"{after.problems}, {after.n}"


def text_table(shown: Demonstration) -> str:
    """Return the report for a terminal: a sentence on the result, then the tables."""
    parts = [headline(shown), ""]
    for name, before in shown.before.items():
        if told := _nothing_right(name, before, shown.after[name]):
            parts += [told, ""]
            continue
        rows = [(f"held out: {name}", "before", "after")]
        rows += score_rows(before, shown.after[name])
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        parts += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        parts.append("")
    return "\n".join(parts)


def html_page(shown: Demonstration) -> str:
    """Return the report of the demonstration as one HTML page."""
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    body = page.from_string(template).render(
        shown=shown,
        headline=headline(shown),
        reached=_reached(shown),
        right={name: shown.curves[name] for name in _RIGHT if name in shown.curves},
        times={name: shown.curves[name] for name in _TIMES if name in shown.curves},
        nothing_right=_nothing_right,
        score_rows=score_rows,
        failures=_failures,
        lines=lines,
        bars=bars,
    )
    return document(shown.title, [body], scripted=False, kind="narrow")


def headline(shown: Demonstration) -> str:
    """Return a sentence that compares held-out first answers before and after training."""
    for name, before in shown.before.items():
        one, two = before.sampled, shown.after[name].sampled
        if one is None or two is None:
            continue
        if two.low > one.high:
            verb = "rose"
        elif two.high < one.low:
            verb = "fell"
        else:
            verb = "changed by no more than chance,"
        steps = max(map(len, shown.curves.values()), default=0)
        trained = f"In {steps} steps" if steps else "With training"
        return (
            f"{trained}, right first answers to held-out problems ({name}) {verb} from "
            f"{100 * one.value:.1f} % to {100 * two.value:.1f} %."
        )
    return "No held-out problem was played."


def _nothing_right(name: str, before: Scores, after: Scores) -> str:
    """Return a sentence in place of a table if no answer in it is right; empty otherwise."""
    sides = (before, after)
    rates = [rate for s in sides for rate in (s.sampled, s.greedy, s.within, *s.pass_at.values())]
    if any(rate is not None and rate.value > 0 for rate in rates):
        return ""
    return (
        f"held out: {name}: no answer was right, before or after "
        f"({after.problems} problems, {after.n} answers)"
    )


def _told(rate: RateEstimate | None) -> str:
    return "-" if rate is None else str(rate)


def _reached(shown: Demonstration) -> tuple[str, int, RateEstimate] | None:
    """Return the first table, its largest k, and its pass@k before training; None if k is 1."""
    for table, before in shown.before.items():
        most = max(before.pass_at, default=1)
        return (table, most, before.pass_at[most]) if most > 1 else None
    return None


def _failures(before: Scores, after: Scores) -> dict[str, tuple[float, float]]:
    """Return the share of answers of each kind before and after training, right ones first."""
    names = before.failures.keys() | after.failures.keys()
    found = {
        name: (
            before.failures.get(name, 0) / max(1, before.n),
            after.failures.get(name, 0) / max(1, after.n),
        )
        for name in names
    }
    ranked = sorted(found, key=lambda name: (name != "right", -max(found[name]), name))
    return {name: found[name] for name in ranked[:_MOST_FAILURES]}
