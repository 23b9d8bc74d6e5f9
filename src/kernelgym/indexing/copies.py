"""The copy test: finds entries whose unchanged kernels solve held-out problems.

Contract: for each held-out problem the nearest entries that are not excluded are judged on it,
untimed and nearest first, until `needed` have failed to solve it. An entry whose kernel is accepted
gives the answer away and leaves the index for good. What passed is named per problem, and
`Index.passed` lets nothing else be shown for it. An entry on which the judge itself failed has not
passed. A problem that cannot be judged here, or for which no time was left, is said to be untested;
for it only exclusion by text holds.

On a CPU, KernelBench's problems are tested in their small forms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelgym.errors import ProblemError
from kernelgym.indexing.judging import BuildVerdicts
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.index import Index
from kernelgym.suites.kernelbench_small import small_form
from kernelgym.types import Job, Kernel, Problem

_DEEPEST = 512
"""Largest number of nearest entries that are tested for a problem."""


@dataclass(frozen=True, slots=True)
class CopyTest:
    """Result of a copy test."""

    index: Index
    """Index without the entries that were accepted, which names the entries that passed."""
    accepted: tuple[str, ...] = ()
    """Ids of entries that solve a held-out problem."""
    untested: Mapping[str, str] = field(default_factory=dict)
    """Reason why a problem was not tested, by its id."""


def reach(index: Index, problems: Sequence[Problem], depth: int) -> tuple[IndexEntry, ...]:
    """Return the entries that prompts of problems can show, each problem's nearest first.

    Args:
        index: The index.
        problems: The problems.
        depth: Nearest entries of each, after exclusion.
    """
    ranked = [_nearest(index, problem, depth) for problem in problems]
    found = {
        entries[place].id: entries[place]
        for place in range(depth)
        for entries in ranked
        if place < len(entries)
    }
    return tuple(found.values())


def copy_test(
    index: Index,
    held_out: Sequence[Problem],
    judged: BuildVerdicts,
    *,
    needed: int,
    device: str,
    advance: Callable[[], None] = lambda: None,
) -> CopyTest:
    """Return an index whose entries do not solve held-out problems.

    Args:
        index: Entries of one language, without those that texts exclude.
        held_out: The problems.
        judged: Judges without taking times.
        needed: Entries that must have failed on a problem.
        device: Device of the judge.
        advance: Function that is called after each problem.
    """
    accepted: set[str] = set()
    passed: dict[str, tuple[str, ...]] = {}
    untested: dict[str, str] = {}
    todo = list(held_out)
    while todo:
        for problem in todo:
            try:
                form = _judged_form(problem, device)
            except ProblemError as error:
                untested[problem.id] = str(error)
                advance()
                continue
            entries = _nearest(index, problem, _DEEPEST)
            failed = _failing(entries, form, judged, accepted, needed)
            if failed is None:
                untested[problem.id] = "no time was left for it"
                passed.pop(problem.digest, None)
                passed.pop(form.digest, None)
            else:
                passed[problem.digest] = passed[form.digest] = failed
            advance()
        # An entry that failed on one problem may have been found to solve another since.
        todo = [each for each in todo if accepted & set(passed.get(each.digest, ()))]
    without = dataclasses.replace(index.without(accepted), passed=passed)
    return CopyTest(without, tuple(sorted(accepted)), untested)


def _nearest(index: Index, problem: Problem, depth: int) -> list[IndexEntry]:
    return [neighbour.entry for neighbour in index.search(problem, depth).neighbours]


def _failing(
    entries: Sequence[IndexEntry],
    form: Problem,
    judged: BuildVerdicts,
    accepted: set[str],
    needed: int,
) -> tuple[str, ...] | None:
    """Return ids of nearest entries that fail to solve a problem; None if time ran out.

    Those that solve it are added to `accepted`.
    """
    failed: list[str] = []
    place = 0
    while len(failed) < needed and place < len(entries):
        batch = entries[place : place + needed - len(failed)]
        place += len(batch)
        judged.judge([Job(form, Kernel(entry.kernel, entry.language)) for entry in batch])
        for entry in batch:
            verdict = judged.of(form, Kernel(entry.kernel, entry.language))
            if verdict is None and judged.late:
                return None
            if verdict is not None and verdict.correct:
                accepted.add(entry.id)
            elif verdict is not None and entry.id not in accepted:
                failed.append(entry.id)
    return tuple(failed)


def _judged_form(problem: Problem, device: str) -> Problem:
    """Return the form in which a problem is judged on a device.

    Raises:
        ProblemError: If it has no small form, and needs one.
    """
    if problem.suite != "KernelBench" or device.partition(":")[0] != "cpu":
        return problem
    return problem if problem.id.endswith("@small") else small_form(problem)
