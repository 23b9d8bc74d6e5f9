"""Kinds of failures: statuses by turn, repairs, and frequent messages.

Contract: pure functions of episodes and turns. A turn that was not judged is counted as such and is
in no rate. The repair rate is the share of failures after which the next turn is correct; the blind
rate is the share of other first answers to the same problems that are correct. Only the difference
of the two was learned from feedback.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kernelgym.benchmark.numbers.intervals import RateEstimate, cluster_rate
from kernelgym.benchmark.numbers.outcomes import whole
from kernelgym.types import Severity, Status, Trajectory, Turn, Verdict

_MESSAGE_LENGTH = 160
_PATH = re.compile(r"(?:/[\w.@+-]+)+/")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_PLACE = re.compile(r"^(?:[\w.+-]+:)?\d+(?::\d+)?:\s*")
_SPACE = re.compile(r"\s+")


def failure_of(turn: Turn) -> str:
    """Return the kind of an answer: ``right``, or its failure such as ``runtime: IndexError``."""
    verdict, kind = turn.verdict, turn.feedback.category
    if verdict.correct:
        return "right"
    if verdict.status is Status.REJECTED:
        codes = [found.code for found in verdict.findings if found.severity is Severity.HARD]
        return f"{kind}: {codes[0]}" if codes else kind
    if verdict.status in (Status.RUNTIME_ERROR, Status.COMPILE_ERROR):
        error = turn.feedback.gist.partition(":")[0].split()
        named = error[-1] if error and error[-1].isidentifier() else ""
        return f"{kind}: {named}" if named else kind
    return kind


def statuses_by_turn(episodes: Iterable[Trajectory]) -> list[Counter[str]]:
    """Return the number of verdicts of each status, turn by turn."""
    found: list[Counter[str]] = []
    for episode in episodes:
        for turn in episode.turns:
            while len(found) <= turn.index:
                found.append(Counter())
            found[turn.index][turn.verdict.status.value] += 1
    return found


def solved_by_turn(groups: Mapping[str, Sequence[Trajectory]]) -> list[RateEstimate]:
    """Return the share of episodes solved by each turn, the first one first.

    Args:
        groups: Episodes by problem; those that were not judged to their end are left out.
    """
    kept = [[episode for episode in group if whole(episode)] for group in groups.values()]
    turns = max((len(episode.turns) for group in kept for episode in group), default=0)
    found = [
        cluster_rate([(sum(_solved(e, last) for e in group), len(group)) for group in kept])
        for last in range(1, turns + 1)
    ]
    return [rate for rate in found if rate is not None]


def _solved(episode: Trajectory, turns: int) -> bool:
    return any(turn.verdict.correct for turn in episode.turns[:turns])


def next_statuses(episodes: Iterable[Trajectory]) -> dict[str, Counter[str]]:
    """Return the numbers of the statuses that followed each status; ``end`` if none did."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for episode in episodes:
        statuses = [turn.verdict.status.value for turn in episode.turns]
        for status, following in zip(statuses, [*statuses[1:], "end"], strict=True):
            found[status][following] += 1
    return dict(found)


def repair_rate(groups: Mapping[str, Sequence[Trajectory]]) -> RateEstimate | None:
    """Return the share of failed turns that the next turn repairs.

    Args:
        groups: Episodes by problem.
    """
    clusters = []
    for group in groups.values():
        followed = [
            later.verdict.correct
            for episode in group
            for turn, later in zip(episode.turns, episode.turns[1:], strict=False)
            if turn.verdict.valid and later.verdict.valid and not turn.verdict.correct
        ]
        clusters.append((sum(followed), len(followed)))
    return cluster_rate(clusters)


def blind_rate(groups: Mapping[str, Sequence[Trajectory]]) -> RateEstimate | None:
    """Return the share of failed first answers for which another first answer is correct.

    Args:
        groups: Episodes by problem; problems with one episode are left out.
    """
    clusters: list[tuple[float, float]] = []
    for group in groups.values():
        firsts = [episode.turns[0].verdict for episode in group if episode.turns]
        judged = [verdict for verdict in firsts if verdict.valid]
        right, n = sum(verdict.correct for verdict in judged), len(judged)
        if n > 1:
            clusters.append(((n - right) * right / (n - 1), n - right))
    return cluster_rate(clusters)


def message_kind(verdict: Verdict) -> str:
    """Return a message's first line without the parts that differ between kernels.

    Paths, addresses, places in a file and numbers are left out, so that the same mistake gives the
    same text. Empty if there is no message.
    """
    line = next((line for line in verdict.message.splitlines() if line.strip()), "").strip()
    line = _PLACE.sub("", _PATH.sub("", line))
    line = _NUMBER.sub("N", _ADDRESS.sub("0x...", line))
    return _SPACE.sub(" ", line)[:_MESSAGE_LENGTH]


def frequent_messages(
    turns: Iterable[Turn], statuses: Sequence[Status], most: int = 10
) -> list[tuple[str, int, Turn]]:
    """Return the most frequent messages, each with count and first turn.

    Args:
        turns: The turns.
        statuses: Statuses of the verdicts whose messages are counted.
        most: Largest number of messages returned.
    """
    count: Counter[str] = Counter()
    example: dict[str, Turn] = {}
    for turn in turns:
        if turn.verdict.status in statuses and (kind := message_kind(turn.verdict)):
            count[kind] += 1
            example.setdefault(kind, turn)
    return [(kind, n, example[kind]) for kind, n in count.most_common(most)]
