"""`Story`: a search's log as rows for a reader, and ``trace.md``.

Contract: follows from the events alone. `trace` gives Markdown in which no text of a kernel, a
compiler or a user can end a cell or begin markup. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernelgym_train.mcgs.events import Event

__all__ = ["Comparison", "Row", "Story", "read_story", "trace"]

_TOLD = {
    "duel": "compared with the best so far",
    "confirmed": "compared with the start",
    "reduced": "compared with the best, which has one step more",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One evaluation."""

    number: int
    """From 1."""
    seconds: float
    """For how long the search had run."""
    key: str
    parent: str
    """Key of the node that the move was made at."""
    move: str
    choices: str
    """The state's steps in words."""
    risk: str
    status: str
    value: float | None
    """ln of the speedup over the start's; None for a failure."""
    message: str
    build_s: float
    """Time that the build took."""
    judge_s: float
    """Time that the rest of the verdict took."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One duel."""

    kind: str
    """Name of its event: ``duel``, ``confirmed`` or ``reduced``."""
    after: int
    """Evaluations before it."""
    seconds: float
    key: str
    """Of the second kernel."""
    ratio: float
    low: float
    high: float
    rounds: int
    decided: str
    took_s: float

    @property
    def told(self) -> str:
        """What was compared, in words."""
        return _TOLD[self.kind]


@dataclass(slots=True)
class Story:
    """What a log holds."""

    rows: list[Row] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    duplicates: int = 0
    seconds: float = 0.0
    start_s: float = 0.0
    """Time that judging the start took."""
    resumed: int = 0
    """How often the search went on after its end."""
    stopped: str = ""


def read_story(events: Iterable[Event]) -> Story:
    """Return a log's rows."""
    story = Story()
    proposed: dict[str, Event] = {}
    for event in events:
        story.seconds = event.seconds
        given = event.fields
        match event.name:
            case "start":
                story.start_s += given["wall_s"] + given["build_s"]
            case "proposed":
                proposed[given["key"]] = event
            case "repeated":
                story.duplicates += 1
            case "judged":
                story.rows.append(_row(event, proposed[given["key"]], len(story.rows) + 1))
            case "duel" | "confirmed" | "reduced":
                if given.get("rounds"):  # one that took no duel compared nothing
                    story.comparisons.append(_comparison(event, len(story.rows)))
            case "resumed":
                story.resumed += 1
            case "stopped":
                story.stopped = given["reason"]
    return story


def _row(event: Event, proposed: Event, number: int) -> Row:
    asked, given = proposed.fields, event.fields
    steps = asked["variant"]["applied"]
    return Row(
        number=number,
        seconds=event.seconds,
        key=given["key"],
        parent=asked["node"],
        move=asked["move"],
        choices=", ".join(f"{step['move']} ({step['choice']})" for step in steps),
        risk=asked["risk"],
        status=given["status"],
        value=given["value"],
        message=given["message"],
        build_s=given["build_s"],
        judge_s=given["wall_s"],
    )


def _comparison(event: Event, after: int) -> Comparison:
    given = event.fields
    return Comparison(
        kind=event.name,
        after=after,
        seconds=event.seconds,
        key=given["second"],
        ratio=given["ratio"],
        low=given["low"],
        high=given["high"],
        rounds=given["rounds"],
        decided=given["decided"],
        took_s=given["took_s"],
    )


def trace(story: Story, title: str) -> str:
    """Return the evaluations and comparisons as Markdown.

    Args:
        story: What to tell.
        title: What was searched, and what came out.
    """
    lines = [f"# {_cell(title)}", "", "## Evaluations", ""]
    lines += ["| | seconds | speedup over the start | steps | risk | state |"]
    lines += ["|---:|---:|---:|---|---|---|"]
    for row in story.rows:
        said = _cell(row.status) if row.value is None else f"{math.exp(row.value):.3g}"
        cells = (said, _cell(row.choices), row.risk, f"`{row.key}`")
        lines.append(f"| {row.number} | {row.seconds:.0f} | {' | '.join(cells)} |")
    failures = [row for row in story.rows if row.value is None]
    if failures:
        lines += ["", "## Failures", "", "| | status | last move | message |", "|---:|---|---|---|"]
        for row in failures:
            told = " | ".join(map(_cell, (row.status, row.move, row.message)))
            lines.append(f"| {row.number} | {told} |")
    if story.comparisons:
        head = ("after", "what", "times as fast", "95 % interval", "rounds", "faster", "state")
        lines += ["", "## Comparisons", "", f"| {' | '.join(head)} |", "|---:" * 5 + "|---|---|"]
        for each in story.comparisons:
            interval = f"{each.low:.3g} to {each.high:.3g}"
            lines.append(
                f"| {each.after} | {each.told} | {each.ratio:.3g} | {interval} | {each.rounds} "
                f"| {each.decided} | `{each.key}` |"
            )
    lines += ["", _ending(story), ""]
    return "\n".join(lines)


def _ending(story: Story) -> str:
    ended = f"Ended by: {_cell(story.stopped)}." if story.stopped else "Not ended."
    return f"{ended} {story.duplicates} proposals of known states were refused and cost nothing."


_SPECIAL: Sequence[str] = ("\\", "|", "`", "*", "_", "<", ">", "&", "[", "]", "#")


def _cell(text: str) -> str:
    """Return a text as one line that Markdown shows as it is."""
    line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in line)
