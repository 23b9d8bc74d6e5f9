"""Data of the pages on failures: failed, refused and missing answers.

Contract: pure functions of views; each returns rows of plain values, or of HTML that is marked as
such. Every refused kernel is listed with its finding and the line that the finding is about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from kernelgym.benchmark.numbers.intervals import RateEstimate
from kernelgym.benchmark.numbers.taxonomy import (
    blind_rate,
    failure_of,
    frequent_messages,
    next_statuses,
    repair_rate,
    solved_by_turn,
    statuses_by_turn,
)
from kernelgym.benchmark.pages.charts import stack
from kernelgym.benchmark.pages.text import code_text, problem_link
from kernelgym.benchmark.pages.view import STATES, RunView
from kernelgym.benchmark.recorded_runs import PlayedEpisode
from kernelgym.hygiene import REASONS
from kernelgym.types import Finding, Severity, Status, Turn
from kernelgym.verdict import UNCONFIRMED_SPEED

Link = Callable[[str], str]

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
    """Return the kind of an answer: right, its failure, or the reason why it has no kernel."""
    if turn.verdict.status is not Status.NO_KERNEL:
        return failure_of(turn)
    answer = played.answers.get(turn.index)
    if answer is not None and answer.finish_reason in _GAVE_NO_KERNEL:
        return _GAVE_NO_KERNEL[answer.finish_reason]
    return failure_of(turn) if turn.action.strip() else "format: empty answer"


def status_table(view: RunView) -> tuple[list[str], list[list[object]]]:
    """Return columns and rows of the report's table of failures: statuses, turn by turn."""
    found = statuses_by_turn(played.record.trajectory for played in view.episodes)
    names = [status.value for status in Status if any(each[status.value] for each in found)]
    rows: list[list[object]] = [
        [number, _bar(each, names), *(each[name] for name in names)]
        for number, each in enumerate(found, 1)
    ]
    return ["turn", "", *map(_label, names)], rows


def following_table(view: RunView) -> tuple[list[str], list[list[object]]]:
    """Return columns and rows of the statuses that followed each status."""
    found = next_statuses(played.record.trajectory for played in view.episodes)
    every = [*(status.value for status in Status), "end"]
    names = [name for name in every if any(each[name] for each in found.values())]
    if names in ([], ["end"]):
        return [], []
    rows: list[list[object]] = [
        [_label(status), _bar(found[status], names), *(found[status][name] for name in names)]
        for status in every
        if status in found
    ]
    return ["after", "", *map(_label, names)], rows


def solved_rows(view: RunView) -> list[tuple[int, RateEstimate]]:
    """Return the share of episodes that were solved by each turn."""
    return list(enumerate(solved_by_turn(view.trajectories), 1))


def repairs_of(view: RunView) -> tuple[RateEstimate | None, RateEstimate | None]:
    """Return the share of repaired failures, and that of correct other first answers."""
    return repair_rate(view.trajectories), blind_rate(view.trajectories)


def failure_kinds(view: RunView) -> list[tuple[str, int]]:
    """Return the most frequent kinds of answers, with their numbers."""
    kinds = Counter(failure(played, turn) for played, turn in view.turns_played)
    return kinds.most_common(_MOST_KINDS)


def compiler_messages(view: RunView, link: Link) -> list[list[object]]:
    """Return the most frequent messages of compilers: text, number, first problem."""
    return _messages(view, link, (Status.COMPILE_ERROR,))


def runtime_messages(view: RunView, link: Link) -> list[list[object]]:
    """Return the most frequent messages at run time: text, number, first problem."""
    return _messages(view, link, (Status.RUNTIME_ERROR, Status.TIMEOUT))


def _messages(view: RunView, link: Link, statuses: Sequence[Status]) -> list[list[object]]:
    problem_of = {id(turn): played.key[0] for played, turn in view.turns_played}
    found = frequent_messages([turn for _, turn in view.turns_played], statuses)
    return [
        [code_text(kind), count, problem_link(link, problem_of[id(first)])]
        for kind, count, first in found
    ]


def missing_rows(view: RunView) -> list[tuple[str, int, str]]:
    """Return missing or cut episodes by reason: reason, number, some of them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for (problem, sample), why in view.missing.items():
        groups[why].append(f"{problem} sample {sample}")
    return [(why, len(names), ", ".join(names[:5])) for why, names in groups.items()]


def failed_requests(view: RunView) -> list[tuple[str, str, int]]:
    """Return the most frequent failures of requests: kind, message, number."""
    kinds = Counter((each.kind, each.message[:300]) for each in view.run.failures)
    return [(*about, count) for about, count in kinds.most_common(_MOST_KINDS)]


def refused_rows(view: RunView, link: Link) -> list[list[object]]:
    """Return the findings for which kernels were refused."""
    return _findings(view, link, lambda finding: finding.severity is Severity.HARD)


def unconfirmed_rows(view: RunView, link: Link) -> list[list[object]]:
    """Return the findings on speeds that a second process did not confirm."""
    return _findings(view, link, lambda finding: finding.code == UNCONFIRMED_SPEED)


def degenerate_rows(view: RunView, link: Link) -> list[list[object]]:
    """Return the degenerate problems with their reasons."""
    return [
        [
            problem_link(link, name),
            ", ".join(reasons),
            "; ".join(REASONS.get(reason, reason) for reason in reasons),
        ]
        for name, reasons in view.degenerate.items()
    ]


def custom_shares(view: RunView) -> list[float]:
    """Return the custom shares of correct kernels, where they were measured."""
    verdicts = (turn.verdict for _, turn in view.turns_played)
    return [found.custom_share for found in verdicts if found.correct and found.custom_share]


def _findings(view: RunView, link: Link, chosen: Callable[[Finding], bool]) -> list[list[object]]:
    return [
        [
            problem_link(link, played.key[0]),
            played.sample,
            turn.index + 1,
            code_text(finding.code),
            _line(turn, finding.line),
            finding.message[:500],
        ]
        for played, turn in view.turns_played
        for finding in turn.verdict.findings
        if chosen(finding)
    ]


def _line(turn: Turn, number: int) -> str:
    kernel = turn.reply.kernel
    if not number or kernel is None:
        return "-"
    lines = kernel.source.split("\n")
    text = lines[number - 1] if number <= len(lines) else ""
    return f"{number}: {text.strip()[:200]}"


def _bar(counts: Mapping[str, int], names: Sequence[str]) -> Markup:
    shares = [(_label(name), float(counts[name]), _COLOURS.get(name, _OTHER)) for name in names]
    return Markup(stack(shares))


def _label(status: str) -> str:
    return STATES[status][2] if status in STATES else "end of the episode"
