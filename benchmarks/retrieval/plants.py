"""Which exclusions find solutions of KernelBench's problems that an archive holds in disguise.

Run ``KERNELBENCH_ROOT=DIR python -m benchmarks.retrieval.plants [--out FILE] [--verdicts FILE]
[--honest N] [--minutes M]``. The archive holds, for each problem of level 1, its reference in every
disguise of `benchmarks.retrieval.disguises` under an id of its own, and honest entries: solutions
of the Synthetic suite's levels 2 and 3. A plant's kernel is the right one of the conformance
benchmark where that has one for the problem; without, its text is found or not, and no judge is
asked. Each problem is asked of what the exclusions by id, source and operators leave for all of
them; with ``--verdicts`` the problems that have a right kernel are also asked after the copy test,
on the CPU in their small forms.

``plants``: by disguise, how many were excluded for which reason, and how many of the rest a prompt
for their problem would show. The copy test looks at the nearest entries only, until enough have
failed; what it does not come to is not shown either. ``honest``: how many of the honest entries
were lost. Entries of the Synthetic suite's level 1 are counted apart: what they compute is what
level 1 of KernelBench asks.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import FOLDER, parse_case
from benchmarks.machine import machine
from benchmarks.retrieval.disguises import DISGUISES
from kernelgym.indexing.copies import Tested, copy_test
from kernelgym.indexing.judging import Judged
from kernelgym.judge import LocalEvaluator
from kernelgym.retrieval.cover import cover
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.exclusion import REASONS, keys_of, keys_of_entry
from kernelgym.retrieval.index import POOL, Index
from kernelgym.retrieval.synthetic import synthetic_entries
from kernelgym.suites import suite
from kernelgym.types import Problem

K = 3
_BEYOND = 5
_NO_KERNEL = "class ModelNew:\n    pass\n"
_RIGHT = "l1_*_correct.py"

__all__ = ["Planted", "excluded", "honest_entries", "planted", "right_kernels", "shown"]


@dataclass(frozen=True, slots=True)
class Planted:
    """A solution in disguise."""

    problem: Problem
    disguise: str
    entry: Entry
    has_kernel: bool
    """Whether its kernel is right for the problem."""


def right_kernels() -> dict[str, str]:
    """Return right Triton kernels of the conformance benchmark, by problem."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob(_RIGHT)):
        case = parse_case(path.stem, path.read_text("utf-8"))
        if case.kernel.language == "triton":
            found.setdefault(case.problem, case.kernel.source)
    return found


def planted(problems: Sequence[Problem], kernels: Mapping[str, str]) -> list[Planted]:
    """Return each problem in each disguise that changes it.

    Args:
        problems: What the archive gives away.
        kernels: Right kernels, by a problem's id.
    """
    plants = []
    for number, problem in enumerate(problems):
        kernel = kernels.get(problem.id, "")
        written: set[str] = set()
        for disguise, write in DISGUISES.items():
            text = write(problem.source, number)
            if text and text not in written:
                written.add(text)
                name = f"plant/{disguise}/{number}"
                source = kernel or _NO_KERNEL
                entry = Entry("solution", text, source, "triton", problem_id=name)
                plants.append(Planted(problem, disguise, entry, bool(kernel)))
    return plants


def honest_entries(count: int, levels: Sequence[int] = (2, 3)) -> list[Entry]:
    """Return solutions of Synthetic problems, drawn the same every time."""
    wanted = tuple(f"Synthetic/L{level}/" for level in levels)
    entries = [
        entry
        for entry in synthetic_entries("triton")
        if entry.kind == "solution" and entry.problem_id.startswith(wanted)
    ]
    return random.Random(0).sample(entries, min(count, len(entries)))


def excluded(index: Index, problems: Sequence[Problem]) -> dict[str, str]:
    """Return by an entry's id the first reason for which a problem excludes it."""
    found: dict[str, str] = {}
    for problem in problems:
        for reason, entries in index.excluded_for(problem).items():
            for entry in entries:
                found.setdefault(entry.id, reason)
    return found


def shown(index: Index, problem: Problem) -> list[Entry]:
    """Return what a prompt for the problem would show."""
    pool = index.search(problem, K + POOL).neighbours
    return [neighbour.entry for neighbour in cover(problem.source, pool, K)]


def counted(
    plants: Sequence[Planted], reasons: Mapping[str, str], strict: Index, tested: Tested | None
) -> list[dict[str, Any]]:
    """Return a row per disguise.

    Args:
        plants: The plants.
        reasons: What `excluded` says.
        strict: The index without what it names.
        tested: What the copy test of those with kernels found, if it was run.
    """
    rows = []
    for disguise in DISGUISES:
        mine = [plant for plant in plants if plant.disguise == disguise]
        by = Counter(_own_reason(plant) or reasons.get(plant.entry.id, "") for plant in mine)
        left = [plant for plant in mine if plant.entry.id not in reasons]
        row: dict[str, Any] = {"disguise": disguise, "n": len(mine)}
        row |= {reason: by[reason] for reason in REASONS}
        row["shown"] = sum(_is_shown(strict, plant) for plant in left)
        if tested is not None:
            judged = [p for p in left if p.has_kernel and p.problem.id not in tested.untested]
            row["judged"] = len(judged)
            row["held_out_copy"] = sum(p.entry.id in tested.accepted for p in judged)
            row["shown_after"] = sum(_is_shown(tested.index, plant) for plant in judged)
        rows.append(row)
    return rows


def _own_reason(plant: Planted) -> str:
    """Return why its own problem excludes a plant; empty if it does not."""
    asked, found = keys_of(plant.problem), keys_of_entry(plant.entry)
    return next((reason for reason in REASONS if set(asked[reason]) & set(found[reason])), "")


def _is_shown(index: Index, plant: Planted) -> bool:
    return plant.entry.id in {entry.id for entry in shown(index, plant.problem)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--honest", type=int, default=500)
    parser.add_argument("--minutes", type=float)
    options = parser.parse_args()
    problems, kernels = suite("KernelBench").problems(1), right_kernels()
    plants = planted(problems, kernels)
    honest, easy = honest_entries(options.honest), honest_entries(10_000, (1,))
    own = {entry.id for entry in honest}
    index = Index.from_entries([*honest, *easy, *(plant.entry for plant in plants)])
    reasons = excluded(index, problems)
    strict = index.without(reasons.keys())
    asked = [problem for problem in problems if problem.id in kernels]
    tested = None
    if options.verdicts is not None:
        with LocalEvaluator("cpu", "strict", 2, False) as judge:
            judged = Judged(judge, options.verdicts, options.minutes)
            tested = copy_test(strict, asked, judged, needed=K + _BEYOND, device="cpu")
        for problem_id, why in tested.untested.items():
            print(f"untested: {problem_id}: {why}")
    rows = counted(plants, reasons, strict, tested)
    lost = Counter(reasons[entry] for entry in own & reasons.keys())
    if tested is not None:
        lost["held_out_copy"] = len(own & set(tested.accepted))
    result = {
        "machine": machine("torch", "triton"),
        "problems": len(problems),
        "tested": 0 if tested is None else len(asked) - len(tested.untested),
        "plants": rows,
        "honest": {"n": len(honest), "lost": lost.total(), **lost},
        "same_as_asked": {"n": len(easy), "lost": sum(e.id in reasons for e in easy)},
    }
    for row in rows:
        print(row)
    print(result["honest"], result["same_as_asked"])
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
