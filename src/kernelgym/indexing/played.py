"""Entries of episodes that were played: solutions, repairs and speed-ups.

Contract: `played_entries` is a function of the records' order and content. Only what a judge found
correct is a kernel of an entry, by the ruleset that its record names, and nothing that a judge
could not decide counts. A repair is a wrong kernel and the next correct one of the same episode,
with what was said of the wrong one. A speed-up is two correct kernels of an episode whose intervals
do not overlap. Of each problem (its canonical form, where it has one) the best few are kept, the
fastest first where they were timed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kernelgym.feedback.categories import category
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.exclusion import form_of, tree_key
from kernelgym.types import Problem, Status, Turn

__all__ = ["PER_PROBLEM", "Gathered", "played_entries"]

_Group: TypeAlias = tuple[str, str, str]
"""What a problem is known by, language, and kind of entry."""

PER_PROBLEM = 3
"""Entries of each kind that are kept of a problem."""
_REPAIRED = (Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG)
"""What a repair begins with; a rejected kernel is no example of anything."""


def played_entries(records: Iterable[EpisodeRecord], most: int = PER_PROBLEM) -> list[Entry]:
    """Return the entries that episodes give, by problem and kind.

    Args:
        records: The episodes, with their problems' sources; others are passed over.
        most: Entries of each kind that are kept of a problem.
    """
    gathered = Gathered(most)
    for record in records:
        gathered.add(record)
    return [entry for best in gathered.groups() for entry in best]


class Gathered:
    """The best entries of each problem and kind, gathered by episode.

    Args:
        most: Entries of each kind that are kept of a problem.
        groups: Most pairs of a problem and a kind; the one that gave nothing for the longest time
            is dropped. None for all.
        suits: Whether an entry can be used; all can if None.
    """

    def __init__(
        self,
        most: int = PER_PROBLEM,
        groups: int | None = None,
        suits: Callable[[Entry], bool] | None = None,
    ) -> None:
        self._most, self._limit, self._suits = most, groups, suits
        self._groups: OrderedDict[_Group, dict[str, tuple[float, Entry]]] = OrderedDict()

    def add(self, record: EpisodeRecord) -> None:
        """Add what an episode gives; nothing without its problem's source."""
        if not record.has_source:
            return
        problem = record.trajectory.problem
        mark = form_of(problem) or tree_key(problem.source) or problem.digest
        for worth, entry in _entries(record, problem):
            key = (mark, entry.language, entry.kind)
            known = self._groups.get(key, {})
            if entry.id not in known and self._suits is not None and not self._suits(entry):
                continue
            self._groups[key] = known
            if self._limit is not None:
                self._groups.move_to_end(key)
            if entry.id not in known or known[entry.id][0] < worth:
                known[entry.id] = worth, entry
                for other in sorted(known, key=lambda each: _rank(known[each]))[self._most :]:
                    del known[other]
        while self._limit is not None and len(self._groups) > self._limit:
            self._groups.popitem(last=False)

    def groups(self) -> list[tuple[Entry, ...]]:
        """Return the entries of each problem and kind, the best first.

        In the order in which they first came up; with a limit, in that in which they last did.
        """
        found = [sorted(known.values(), key=_rank) for known in self._groups.values()]
        return [tuple(entry for _, entry in best) for best in found]


def _rank(pair: tuple[float, Entry]) -> tuple[float, str]:
    """Return what sorts an entry: its worth, then its id."""
    worth, entry = pair
    return -worth, entry.id


def _entries(record: EpisodeRecord, problem: Problem) -> Iterator[tuple[float, Entry]]:
    """Yield an episode's entries, each with what it is worth."""
    turns = [turn for turn in record.trajectory.turns if turn.verdict.valid and turn.reply.kernel]
    for place, turn in enumerate(turns):
        if not turn.verdict.correct:
            continue
        low = turn.verdict.speedup_low
        yield low, _entry(record, problem, turn)
        before = turns[place - 1] if place else None
        if before is not None and before.verdict.status in _REPAIRED:
            yield low, _entry(record, problem, turn, before)
        for other in turns[:place]:
            if _faster(turn, other):
                yield low / _speed(other)[2], _entry(record, problem, turn, other)


def _entry(
    record: EpisodeRecord, problem: Problem, turn: Turn, before: Turn | None = None
) -> Entry:
    kernel = turn.reply.kernel
    assert kernel is not None
    started = None if before is None else before.reply.kernel
    repairs = before is not None and not before.verdict.correct
    return Entry(
        "solution" if before is None else "repair" if repairs else "speedup",
        problem.source,
        kernel.source,
        record.language,
        before="" if started is None else started.source,
        problem_id=problem.id,
        name=problem.name,
        form=form_of(problem),
        origin=f"trajectories/{record.writer}",
        licence="",
        verdict="correct",
        feedback=str(before.feedback) if before is not None and repairs else "",
        category=category(before.verdict) if before is not None and repairs else "",
        speed=_speed(turn),
        speed_before=_speed(before) if before is not None and not repairs else (),
        device=record.device.partition(":")[0],
        ruleset=record.ruleset,
    )


def _speed(turn: Turn) -> tuple[float, ...]:
    """Return a speedup and its interval's ends, if it was timed."""
    timing = turn.verdict.timing
    if timing is None or not timing.speedup_high:
        return ()
    return timing.speedup, timing.speedup_low, timing.speedup_high


def _faster(turn: Turn, before: Turn) -> bool:
    """Return True if a kernel is faster, beyond both intervals."""
    if not before.verdict.correct or not _speed(turn) or not _speed(before):
        return False
    return _speed(turn)[1] > _speed(before)[2]
