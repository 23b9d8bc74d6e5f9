"""What went wrong, and what the judge refused or did not believe.

Contract: pure functions of views; each returns HTML. Every refused kernel is listed with its
finding, the line that it is about, and a link to its problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from kernelgym.benchmark.folders import PlayedEpisode
from kernelgym.benchmark.numbers.taxonomy import (
    blind_rate,
    failure_of,
    frequent_messages,
    next_statuses,
    repair_rate,
    solved_by_turn,
    statuses_by_turn,
)
from kernelgym.benchmark.pages.charts import histogram, stack
from kernelgym.benchmark.pages.text import escaped, table
from kernelgym.benchmark.pages.view import STATES, View
from kernelgym.hygiene import REASONS
from kernelgym.types import Severity, Status, Trajectory, Turn
from kernelgym.verdict import UNCONFIRMED_SPEED

__all__ = ["failure", "integrity", "wrong"]

_MOST_ROWS = 200
_MOST_KINDS = 15
_COLOURS = {
    "correct": "var(--fast1)",
    "wrong": "var(--wrong)",
    "rejected": "var(--refused)",
    "no_kernel": "var(--none)",
    "unavailable": "var(--faint)",
    "end": "var(--faint)",
}
_OTHER = "var(--fails)"
_GAVE_NO_KERNEL = {
    "content_filter": "format: withheld by the provider's filter",
    "length": "format: cut off at the limit of tokens",
}


def failure(played: PlayedEpisode, turn: Turn) -> str:
    """Return what became of an answer, or why it holds no kernel."""
    if turn.verdict.status is not Status.NO_KERNEL:
        return failure_of(turn)
    answer = played.answers.get(turn.index)
    if answer is not None and answer.finish_reason in _GAVE_NO_KERNEL:
        return _GAVE_NO_KERNEL[answer.finish_reason]
    return failure_of(turn) if turn.action.strip() else "format: empty answer"


def wrong(views: Sequence[View], link: Callable[[str], str]) -> list[str]:
    """Return statuses by turn, what became of each, repairs, and frequent messages."""
    parts: list[str] = []
    for view in views:
        if len(views) > 1:
            parts.append(f"<h3>{escaped(view.name)}</h3>")
        episodes = [played.record.trajectory for played in view.episodes]
        parts += _by_turn(episodes)
        parts += _followed(episodes)
        groups = {
            name: [played.record.trajectory for played in group]
            for name, group in view.groups.items()
        }
        by_turn = solved_by_turn(groups)
        if len(by_turn) > 1:
            rows = [[str(turn), escaped(rate)] for turn, rate in enumerate(by_turn, 1)]
            parts.append(table(["turn", "episodes solved by then"], rows, caption="Solved by turn"))
        repairs, blind = repair_rate(groups), blind_rate(groups)
        if repairs is not None:
            told = f"{repairs} of failed turns were repaired by the next one"
            if blind is not None:
                told += f"; another first answer in their place would have been right in {blind}"
            parts.append(
                f"<p>{escaped(told)}. Only what exceeds that was learned from feedback.</p>"
            )
        kinds = Counter(failure(played, turn) for played, turn in view.turns_played)
        rows = [[escaped(name), str(count)] for name, count in kinds.most_common(_MOST_KINDS)]
        parts.append(table(["what became of answers", "answers"], rows))
        parts += _messages(view, link)
        parts += _not_there(view)
    return parts


def integrity(views: Sequence[View], link: Callable[[str], str]) -> list[str]:
    """Return refused kernels, unconfirmed speeds, degenerate problems and torch's share."""
    parts: list[str] = []
    for view in views:
        if len(views) > 1:
            parts.append(f"<h3>{escaped(view.name)}</h3>")
        refused = list(_findings(view, link, Severity.HARD))
        columns = ["problem", "sample", "turn", "finding", "line", "what it says"]
        parts.append(
            table(columns, refused[:_MOST_ROWS], caption=f"Refused kernels: {len(refused)}")
            or "<p>No kernel was refused.</p>"
        )
        if len(refused) > _MOST_ROWS:
            parts.append(f'<p class="quiet">The first {_MOST_ROWS} are listed.</p>')
        unsure = list(_findings(view, link, None, UNCONFIRMED_SPEED))
        parts.append(
            table(columns, unsure[:_MOST_ROWS], caption="Speeds that were not confirmed")
            or "<p>Every speed that was too good to believe was confirmed, or there was none.</p>"
        )
        rows = [
            [
                f'<a href="{escaped(link(name))}">{escaped(name)}</a>',
                escaped(", ".join(reasons)),
                escaped("; ".join(REASONS.get(reason, reason) for reason in reasons)),
            ]
            for name, reasons in view.degenerate.items()
        ]
        parts.append(
            table(["problem", "reason", "what that means"], rows, caption="Degenerate problems")
            or "<p>No problem of this run is known to be degenerate.</p>"
        )
        shares = [
            turn.verdict.custom_share
            for _, turn in view.turns_played
            if turn.verdict.correct and turn.verdict.custom_share
        ]
        if shares:
            parts.append(
                "<p>Share of the reference's work that custom kernels replaced, of correct kernels "
                "that evidence was gathered for; the rest was left to torch.</p>"
            )
            parts.append(histogram(shares, name="custom share"))
    return parts


def _by_turn(episodes: Sequence[Trajectory]) -> Iterator[str]:
    found = statuses_by_turn(episodes)
    if not found:
        return
    names = [status.value for status in Status if any(each[status.value] for each in found)]
    rows = [
        [
            str(number),
            _bar([(name, each[name]) for name in names]),
            *(str(each[name]) for name in names),
        ]
        for number, each in enumerate(found, 1)
    ]
    yield table(["turn", "", *(_label(name) for name in names)], rows, caption="Status by turn")


def _followed(episodes: Sequence[Trajectory]) -> Iterator[str]:
    found = next_statuses(episodes)
    if not any(name != "end" for each in found.values() for name in each):
        return
    following = [status.value for status in Status] + ["end"]
    following = [name for name in following if any(each[name] for each in found.values())]
    rows = [
        [
            escaped(_label(status)),
            _bar([(name, found[status][name]) for name in following]),
            *(str(found[status][name]) for name in following),
        ]
        for status in (each.value for each in Status)
        if status in found
    ]
    columns = ["after", "", *("end of the episode" if n == "end" else _label(n) for n in following)]
    yield table(columns, rows, caption="What became of each status: the next turn")


def _bar(counts: Sequence[tuple[str, int]]) -> str:
    return stack([(_label(name), float(n), _COLOURS.get(name, _OTHER)) for name, n in counts])


def _label(status: str) -> str:
    return STATES[status][2] if status in STATES else status


def _messages(view: View, link: Callable[[str], str]) -> Iterator[str]:
    place = {id(turn): played for played, turn in view.turns_played}
    for statuses, caption in (
        ((Status.COMPILE_ERROR,), "Compiler messages that occur most"),
        ((Status.RUNTIME_ERROR, Status.TIMEOUT), "Messages at run time that occur most"),
    ):
        turns = [turn for _, turn in view.turns_played]
        rows = []
        for kind, count, first in frequent_messages(turns, statuses):
            problem = place[id(first)].key[0]
            rows.append(
                [
                    f"<code>{escaped(kind)}</code>",
                    str(count),
                    f'<a href="{escaped(link(problem))}">{escaped(problem)}</a>',
                ]
            )
        yield table(["message", "answers", "first in"], rows, caption=caption)


def _not_there(view: View) -> Iterator[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for (problem, sample), why in view.missing.items():
        groups[why].append(f"{problem} sample {sample}")
    rows = [
        [escaped(why), str(len(names)), escaped(", ".join(names[:5]))]
        for why, names in groups.items()
    ]
    yield table(["why", "episodes", "such as"], rows, caption="Missing or cut episodes")
    kinds = Counter((each.kind, each.message) for each in view.run.failures)
    rows = [
        [escaped(kind), f"<code>{escaped(message, 300)}</code>", str(count)]
        for (kind, message), count in kinds.most_common(_MOST_KINDS)
    ]
    yield table(["failure", "message", "requests"], rows, caption="Requests without an answer")


def _findings(
    view: View, link: Callable[[str], str], severity: Severity | None, code: str = ""
) -> Iterator[list[str]]:
    for played, turn in view.turns_played:
        for finding in turn.verdict.findings:
            if (severity is not None and finding.severity is not severity) or (
                code and finding.code != code
            ):
                continue
            identity = played.key[0]
            yield [
                f'<a href="{escaped(link(identity))}">{escaped(identity)}</a>',
                str(played.sample),
                str(turn.index + 1),
                f"<code>{escaped(finding.code)}</code>",
                _line(turn, finding.line),
                escaped(finding.message, 500),
            ]


def _line(turn: Turn, number: int) -> str:
    kernel = turn.reply.kernel
    if not number or kernel is None:
        return "-"
    lines = kernel.source.split("\n")
    text = lines[number - 1] if number <= len(lines) else ""
    return f"{number}: <code>{escaped(text.strip(), 200)}</code>"
