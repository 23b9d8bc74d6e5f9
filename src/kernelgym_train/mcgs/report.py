"""`report`: a search as one HTML file, without scripts.

Contract: follows from the log and the result alone. Every text that comes from a kernel, a
compiler, a model or a user is escaped. Pure.
"""

from __future__ import annotations

import collections
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym_train.mcgs.drawing import gain_chart, graph_drawing, time_bars
from kernelgym_train.mcgs.progress import Progress
from kernelgym_train.mcgs.story import Story

__all__ = ["report"]

_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1f2328; background: #fff; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d0d7de;
  vertical-align: top; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
pre { background: #f6f8fa; padding: 1rem; overflow-x: auto; font-size: 13px; }
"""


def report(
    story: Story, progress: Progress, result: Mapping[str, Any], sentence: str, diff: str
) -> str:
    """Return the page.

    Args:
        story: The log's rows.
        progress: The search that the log adds up to.
        result: What ``result.json`` holds.
        sentence: The result in one sentence.
        diff: The best's difference from the start; empty where the start is the best.
    """
    best = result["best"]["state"]
    names = {
        key: ", ".join(f"{step.move} ({step.choice})" for step in variant.applied) or "the start"
        for key, variant in progress.variants.items()
    }
    body = [
        f"<h1>Search: {html.escape(str(result['task']))}</h1>",
        f"<p>{html.escape(sentence)}</p>",
        _table(("", ""), _summary(result)),
        "<h2>Gain by evaluation</h2>",
        gain_chart(story.rows, story.comparisons),
        "<h2>Graph</h2>",
        graph_drawing(progress.graph, names, best if best in progress.graph.nodes else ""),
        "<h2>Comparisons</h2>",
        _comparisons(story, names),
        "<h2>Moves</h2>",
        _moves(story),
        "<h2>Failures</h2>",
        _failures(story),
        "<h2>Time</h2>",
        time_bars(_times(story)),
        "<p>Kernels are built and judged side by side, so that parts can add up to more than the "
        "whole.</p>",
    ]
    if diff:
        body += ["<h2>The best, as a change to the start</h2>", f"<pre>{html.escape(diff)}</pre>"]
    title = html.escape(f"Search: {result['task']}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _summary(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    over = result["over_reference"]
    rows = [
        ("speedup over the start", _interval(result)),
        ("speedup over the reference", _interval(over)),
        ("evaluations", str(result["evaluations"])),
        ("proposals refused as known", str(result["duplicates"])),
        ("seconds", f"{result['seconds']:.0f}"),
        ("ended by", result["stopped"]),
        ("two verdicts on the start differ by", f"{math.expm1(result['noise']):.1%}"),
        ("risk of the best", result["risk"]),
    ]
    if without := result["without_approximate"]:
        rows.append(("without approximate moves", _interval(without)))
    return rows + [(f"context: {name}", str(said)) for name, said in result["context"].items()]


def _interval(data: Mapping[str, Any]) -> str:
    if not data["speedup"]:
        return "not measured"
    low, high = data["speedup_low"], data["speedup_high"]
    return f"{data['speedup']:.3g} (95 %: {low:.3g} to {high:.3g})"


def _comparisons(story: Story, names: Mapping[str, str]) -> str:
    rows = [
        (
            str(each.after),
            each.told,
            names.get(each.key, each.key),
            f"{each.ratio:.3g} ({each.low:.3g} to {each.high:.3g})",
            str(each.rounds),
            each.decided,
        )
        for each in story.comparisons
    ]
    head = ("after evaluation", "what", "kernel", "times as fast", "rounds", "faster")
    return _table(head, rows) if rows else "<p>None.</p>"


def _moves(story: Story) -> str:
    """Return what each move came to: its last step's evaluations."""
    tried, failed, better = (collections.Counter[str]() for _ in range(3))
    values: dict[str, float] = {row.key: row.value for row in story.rows if row.value is not None}
    for row in story.rows:
        tried[row.move] += 1
        failed[row.move] += row.value is None
        better[row.move] += row.value is not None and row.value > values.get(row.parent, 0.0)
    rows = [
        (move, str(tried[move]), str(better[move]), str(failed[move])) for move in sorted(tried)
    ]
    head = ("move", "evaluations", "faster than what it changed", "failures")
    return _table(head, rows) if rows else "<p>None.</p>"


def _failures(story: Story) -> str:
    rows = [
        (str(row.number), row.status, row.choices, row.message)
        for row in story.rows
        if row.value is None
    ]
    head = ("evaluation", "status", "steps", "message")
    return _table(head, rows) if rows else "<p>None.</p>"


def _times(story: Story) -> dict[str, float]:
    return {
        "the whole search": story.seconds,
        "judging the start": story.start_s,
        "builds": sum(row.build_s for row in story.rows),
        "verdicts, without builds": sum(row.judge_s for row in story.rows),
        "comparisons": sum(each.took_s for each in story.comparisons),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cells(kind: str, values: Sequence[str]) -> str:
        return "".join(f"<{kind}>{html.escape(value)}</{kind}>" for value in values)

    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if any(head) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{top}<tbody>{body}</tbody></table>"
