"""The copy test: which entries solve held-out problems, verbatim.

Contract: for each held-out problem the nearest entries that are not excluded are judged on it,
untimed and nearest first, until `needed` of each kind have failed to solve it. An entry whose
kernel (or the one that a speed-up began with) is accepted gives the answer away and leaves the
index for good. What passed is named per problem, and `Index.passed` lets nothing else be shown for
it. An entry on which the judge itself failed has not passed. A problem that cannot be judged here,
or for which no time was left, is said to be untested; for it only exclusion by text holds.

On a CPU, KernelBench's problems are tested in their small forms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelgym.errors import ProblemError
from kernelgym.indexing.judging import Judged
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.operators import operators
from kernelgym.suites.small_sizes import small_form
from kernelgym.types import Job, Kernel, Problem, Status

__all__ = ["ALIKE", "Tested", "copy_test", "reach"]

ALIKE = 0.98
"""Cosine from which an entry is reported as very like a held-out problem."""
_DEEPEST = 512
"""Nearest entries that are looked at per problem."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What the copy test found."""

    index: Index
    """The index without the entries that were accepted, and with what passed."""
    accepted: tuple[str, ...] = ()
    """Ids of entries that solve a held-out problem."""
    untested: Mapping[str, str] = field(default_factory=dict)
    """By a problem's id, why it was not tested."""
    alike: int = 0
    """Pairs of a held-out problem and an entry whose cosine is `ALIKE` or more."""
    covered: int = 0
    """Held-out problems whose operators all occur in the index."""


def reach(index: Index, problems: Sequence[Problem], depth: int) -> tuple[Entry, ...]:
    """Return entries that problems can be shown, the nearest first.

    Args:
        index: The index.
        problems: The problems.
        depth: Nearest entries of each, after exclusion.
    """
    kinds = {entry.kind for entry in index.entries}
    ranked = [
        [n.entry for n in index.search(problem, depth, kinds=kinds).neighbours]
        for problem in problems
    ]
    order: dict[str, Entry] = {}
    for place in range(depth):
        for entries in ranked:
            if place < len(entries):
                order.setdefault(entries[place].id, entries[place])
    return tuple(order.values())


def copy_test(
    index: Index,
    held_out: Sequence[Problem],
    judged: Judged,
    *,
    needed: int,
    device: str,
    advance: Callable[[], None] = lambda: None,
) -> Tested:
    """Return an index whose entries do not solve held-out problems.

    Args:
        index: Entries of one language, without those that texts exclude.
        held_out: The problems.
        judged: Judges without taking times.
        needed: Entries of each kind that must have failed on a problem.
        device: Where the judge runs.
        advance: Called once per problem that is done.
    """
    untested: dict[str, str] = {}
    forms: dict[str, Problem] = {}
    for problem in held_out:
        try:
            forms[problem.id] = _judged_form(problem, device)
        except ProblemError as error:
            untested[problem.id] = str(error)
    ranked = {
        problem.id: [
            (n.entry, n.score)
            for n in index.search(problem, _DEEPEST, kinds=_kinds(index)).neighbours
        ]
        for problem in held_out
    }
    accepted: set[str] = set()
    passed: dict[str, tuple[str, ...]] = {}
    failed: set[tuple[str, str]] = set()
    open_ones = [problem for problem in held_out if problem.id in forms]
    while open_ones:
        wanted: dict[str, list[Entry]] = {}
        for problem in open_ones:
            entries = [e for e, _ in ranked[problem.id] if (problem.id, e.id) not in failed]
            good, todo = _looked_through(entries, forms[problem.id], judged, accepted, needed)
            if todo:
                wanted[problem.id] = todo
            else:
                passed[problem.id] = tuple(entry.id for entry in good)
                advance()
        # What passed first may hold an entry that another problem has found out since.
        for problem_id in [key for key, ids in passed.items() if accepted & set(ids)]:
            del passed[problem_id]
            wanted.setdefault(problem_id, [])
        jobs = [
            Job(forms[problem_id], kernel)
            for problem_id, entries in wanted.items()
            for entry in entries
            for kernel in _kernels(entry)
        ]
        left = {(job.problem.digest, job.kernel.digest) for job in judged.judge(jobs)}
        for problem_id, entries in wanted.items():
            for entry in entries:
                if any((forms[problem_id].digest, k.digest) in left for k in _kernels(entry)):
                    failed.add((problem_id, entry.id))
                    if judged.late:
                        untested[problem_id] = "no time was left for it"
        open_ones = [p for p in held_out if p.id in wanted and p.id not in untested]
    by_digest = dict(_by_digest(held_out, forms, passed, untested))
    without = dataclasses.replace(index.without(accepted), passed=by_digest)
    everything = {name for entry in without.entries for name in operators(entry.reference)}
    return Tested(
        without,
        tuple(sorted(accepted)),
        untested,
        sum(score >= ALIKE for pairs in ranked.values() for _, score in pairs),
        sum(set(operators(problem.source)) <= everything for problem in held_out),
    )


def _looked_through(
    entries: Sequence[Entry], form: Problem, judged: Judged, accepted: set[str], needed: int
) -> tuple[list[Entry], list[Entry]]:
    """Return entries that failed on a problem, and those to judge."""
    good: list[Entry] = []
    todo: list[Entry] = []
    for entry in entries:
        # Each kind is shown by itself, so that each needs as many.
        if sum(other.kind == entry.kind for other in (*good, *todo)) >= needed:
            continue
        if entry.id in accepted:
            continue
        found = [judged.of(form, kernel) for kernel in _kernels(entry)]
        if any(said is not None and said.status == Status.CORRECT.value for said in found):
            accepted.add(entry.id)
        elif None in found:
            todo.append(entry)
        else:
            good.append(entry)
    return good, todo


def _by_digest(
    held_out: Sequence[Problem],
    forms: Mapping[str, Problem],
    passed: Mapping[str, tuple[str, ...]],
    untested: Mapping[str, str],
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what passed, by the digests of problem and judged form."""
    for problem in held_out:
        if problem.id in passed and problem.id not in untested:
            yield problem.digest, passed[problem.id]
            yield forms[problem.id].digest, passed[problem.id]


def _judged_form(problem: Problem, device: str) -> Problem:
    """Return the form in which a problem is judged on a device.

    Raises:
        ProblemError: If it has no small form, and needs one.
    """
    if problem.suite != "KernelBench" or device.partition(":")[0] != "cpu":
        return problem
    return problem if problem.id.endswith("@small") else small_form(problem)


def _kernels(entry: Entry) -> list[Kernel]:
    """Return the kernels of an entry that may be correct."""
    sources = [entry.kernel, entry.before] if entry.kind == "speedup" else [entry.kernel]
    return [Kernel(source, entry.language) for source in sources]


def _kinds(index: Index) -> set[str]:
    return {entry.kind for entry in index.entries}
