"""The report of a demonstration: a text table, and one HTML page.

Contract: pure functions of a `Demonstration`. The page is whole in itself (plain SVG, no script, no
font, nothing fetched), and says beside the numbers what they do not show. Every text of a model or
a problem is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from kernelgym.benchmark.numbers.intervals import RateEstimate
from kernelgym.benchmark.pages.drawing import bars, lines
from kernelgym.benchmark.pages.style import document
from kernelgym_train.demo.results import Demonstration, Specimen
from kernelgym_train.demo.scores import Scores

_RIGHT = ("right at the first turn", "right within the episode", "parsed", "refused as cheating")
_TIMES = ("seconds of the model", "seconds of the judge", "seconds of the optimiser")
_MOST_FAILURES = 10
_HIGH = 0.8


def score_rows(before: Scores, after: Scores) -> Iterator[tuple[str, str, str]]:
    """Yield what is measured, before and after training; rates with their 95 % interval."""
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
    """Return what happened in a sentence, then the tables, for a terminal."""
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


def caveats(shown: Demonstration) -> Iterator[str]:
    """Yield what must be said beside the numbers."""
    yield ("Rates are of first answers unless said otherwise; intervals are over problems, 95 %.")
    first = next(iter(shown.before), None)
    if first is not None:
        most = max(shown.before[first].pass_at, default=1)
        reached = shown.before[first].pass_at.get(most)
        if most > 1 and reached is not None:
            yield _sharpening(most, reached, first)
    yield from shown.notes
    yield (
        "This shows that episodes, judge, credit and trainer together learn from executed kernels. "
        "It says nothing about how well a pretrained model writes kernels."
    )


def html_page(shown: Demonstration) -> str:
    """Return the report as one HTML page."""
    title = escape(shown.title)
    body = [f"<h1>{title}</h1>", f"<p>{escape(headline(shown))}</p>"]
    chosen = {name: shown.curves[name] for name in _RIGHT if name in shown.curves}
    if chosen:
        body.append(lines(chosen, top=1.0, percent=True))
        body.append("<p>Answers during training, on the problems trained on.</p>")
    if shown.specimens:
        body.append("<h2>What it wrote to a problem held out</h2>")
    body += map(_specimen, shown.specimens)
    body.append("<h2>Before and after, on problems held out</h2>")
    for name, before in shown.before.items():
        told = _nothing_right(name, before, shown.after[name])
        if told:
            body.append(f"<p>{escape(told)}</p>")
        else:
            body.append(_table(f"held out: {name}", before, shown.after[name]))
    body += ["<h2>What was done</h2>", _facts(shown.facts)]
    for name in ("reward", "entropy, nats per token"):
        if name in shown.curves:
            body.append(lines({name: shown.curves[name]}))
    body.append("<h2>What became of first answers</h2>")
    for name, before in shown.before.items():
        body.append(f"<h3>{escape(name)}</h3>")
        body.append(bars(_failures(before, shown.after[name]), ("before", "after")))
    times = {name: shown.curves[name] for name in _TIMES if name in shown.curves}
    if times:
        body += ["<h2>Where the time of a step went</h2>", lines(times)]
    body.append(_facts({name: f"{seconds:.0f} s" for name, seconds in shown.seconds.items()}))
    body.append("<h2>What this shows, and what it does not</h2><ul>")
    body += [f"<li>{escape(text)}</li>" for text in caveats(shown)]
    body.append("</ul>")
    return document(shown.title, body, scripted=False, kind="narrow")


def headline(shown: Demonstration) -> str:
    """Return one sentence: what became of first answers to held-out problems."""
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
    """Return a line in place of a table in which no answer is right; empty if one is."""
    sides = (before, after)
    rates = [rate for s in sides for rate in (s.sampled, s.greedy, s.within, *s.pass_at.values())]
    if any(rate is not None and rate.value > 0 for rate in rates):
        return ""
    return (
        f"held out: {name}: no answer was right, before or after "
        f"({after.problems} problems, {after.n} answers)"
    )


def _specimen(specimen: Specimen) -> str:
    return (
        f"<h3>{escape(specimen.problem)}</h3><pre>{escape(specimen.question)}</pre>"
        f'<div class="pair"><div>before: {escape(specimen.before_verdict)}'
        f"<pre>{escape(specimen.before)}</pre></div>"
        f"<div>after: {escape(specimen.after_verdict)}"
        f"<pre>{escape(specimen.after)}</pre></div></div>"
    )


def _told(rate: RateEstimate | None) -> str:
    return "-" if rate is None else str(rate)


def _sharpening(most: int, reached: RateEstimate, table: str) -> str:
    told = f"Of {table}, the model solved {reached} before training if it had {most} tries"
    if reached.value >= _HIGH:
        return f"{told}: most of what was learned is sharpening, to give first what it gave rarely."
    return f"{told}: what is beyond that was not within its reach before."


def _facts(facts: Mapping[str, str]) -> str:
    rows = (f"<tr><th>{escape(n)}</th><td>{escape(text)}</td></tr>" for n, text in facts.items())
    return f"<table>{''.join(rows)}</table>"


def _table(caption: str, before: Scores, after: Scores) -> str:
    rows = (
        f"<tr><th>{escape(name)}</th><td>{escape(one)}</td><td>{escape(two)}</td></tr>"
        for name, one, two in score_rows(before, after)
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<tr><th></th><th>before</th><th>after</th></tr>{''.join(rows)}</table></div>"
    )


def _failures(before: Scores, after: Scores) -> dict[str, tuple[float, float]]:
    """Return the shares of what became of answers, the most frequent first."""
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
