"""Index entries made from recorded episodes: one for each correct kernel.

Contract: `played_entries` is a function of the records' order and content. Only what a judge found
correct is an entry, by the ruleset that its record names. Of each problem (its canonical form,
where it has one) and language the best few are kept, the fastest first where they were timed.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.retrieval.entry import IndexEntry, unusable
from kernelgym.retrieval.exclusion import form_of, tree_key
from kernelgym.types import Turn, Verdict

_PER_PROBLEM = 3
"""Largest number of index entries kept for one problem."""


def played_entries(records: Iterable[EpisodeRecord], most: int = _PER_PROBLEM) -> list[IndexEntry]:
    """Return the entries of recorded episodes, grouped by problem.

    Args:
        records: Episodes with their problems' sources; others are passed over.
        most: Entries that are kept of a problem.
    """
    gathered = BestKernels(most)
    for record in records:
        gathered.add(record)
    return gathered.entries()


class BestKernels:
    """The best entries of each problem, gathered episode by episode.

    Args:
        most: Entries that are kept of a problem.
    """

    def __init__(self, most: int = _PER_PROBLEM) -> None:
        self._most = most
        self._by_problem: dict[tuple[str, str], list[tuple[float, IndexEntry]]] = {}

    def add(self, record: EpisodeRecord) -> None:
        """Add the correct kernels of an episode; none if it lacks its problem's source."""
        if not record.has_source:
            return
        problem = record.trajectory.problem
        mark = form_of(problem) or tree_key(problem.source) or problem.digest
        for turn in record.trajectory.turns:
            if not turn.verdict.correct or turn.reply.kernel is None:
                continue
            entry = _entry(record, turn)
            key = mark, record.language
            # A problem that was solved again is among the newest.
            known = self._by_problem.pop(key, [])
            worth = -turn.verdict.speedup_low
            if not any(other.id == entry.id and best <= worth for best, other in known):
                known = [pair for pair in known if pair[1].id != entry.id]
                if not unusable(entry):
                    known = sorted([*known, (worth, entry)], key=lambda p: (p[0], p[1].id))
            if known:
                self._by_problem[key] = known[: self._most]

    def entries(self) -> list[IndexEntry]:
        """Return the best entries of each problem, problems of the newest episodes last."""
        return [entry for best in self._by_problem.values() for _, entry in best]


def speed_of(verdict: Verdict) -> tuple[float, ...]:
    """Return a verdict's speedup and the ends of its interval; empty if it was not timed."""
    timing = verdict.timing
    if timing is None or not timing.speedup_high:
        return ()
    return timing.speedup, timing.speedup_low, timing.speedup_high


def _entry(record: EpisodeRecord, turn: Turn) -> IndexEntry:
    problem, kernel = record.trajectory.problem, turn.reply.kernel
    assert kernel is not None
    return IndexEntry(
        problem.source,
        kernel.source,
        record.language,
        problem_id=problem.id,
        name=problem.name,
        form=form_of(problem),
        origin=f"trajectories/{record.writer}",
        verdict="correct",
        device=record.device.partition(":")[0],
        ruleset=record.ruleset,
        speed=speed_of(turn.verdict),
    )
