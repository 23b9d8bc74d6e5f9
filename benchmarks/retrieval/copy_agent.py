"""How many held-out problems are solved by copying what retrieval shows.

Run ``python -m benchmarks.retrieval.copy_agent --verdicts FOLDER [--out FILE] [--language L]
[--limit N] [--minutes M] [--workers N]``. The archive is the worst there could be: solutions of the
Synthetic suite's problems of all parts, among them the very problems that are asked. A problem is
asked of it with the exclusions ``none``; ``1``, its own id and name; ``1-3``, what same texts,
trees, operators and forms exclude, for all problems asked; and ``all``, with the copy test
(`kernelgym.indexing.copies`). The agent answers with each of the three kernels that a prompt would
show: verbatim; with names and sizes changed to those asked; and with the two whose operators, one
after the other, are most like those asked, chained (`benchmarks.retrieval.adapting`). The judge is
``strict`` on the CPU, untimed. Verdicts are kept in FOLDER, so that a run that was killed goes on.

Rows are per language, level and exclusions: of how many problems one answer was accepted, of how
many with all verdicts. ``three``: those that still have three examples.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.machine import machine
from benchmarks.retrieval.adapting import joined
from kernelgym.evaluators.cached import CachedEvaluator
from kernelgym.indexing.copies import copy_test
from kernelgym.indexing.judging import BuildVerdicts
from kernelgym.judge import LocalEvaluator
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.exclusion import keys_of, keys_of_entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.operators import operators
from kernelgym.suites.synthetic import SyntheticSuite, Target, canonical_form, solve
from kernelgym.types import Evaluator, Job, Kernel, Problem

EXCLUSIONS = ("none", "1", "1-3", "all")
WAYS = ("accepted", "adapted", "chained")
"""Verbatim, with names and sizes changed, and two in a row."""
K = 3
_BEYOND = 5
"""Entries beyond k that must pass the copy test, as in a build."""
_PER_LEVEL = {1: 300, 2: 800, 3: 400}
"""Problems of the archive, as many as the embedded index looks at."""
_AT_ONCE = 15
"""Problems that are finished before the next are begun, so that a short run is balanced."""

__all__ = ["EXCLUSIONS", "WAYS", "answers", "archive", "asked_problems", "measured", "shown"]


def asked_problems(count: int) -> list[Problem]:
    """Return held-out problems, each of a canonical form of its own, the levels in turn."""
    levels: list[list[Problem]] = []
    for level in _PER_LEVEL:
        forms: dict[str, Problem] = {}
        each = -(-count // len(_PER_LEVEL))
        for problem in SyntheticSuite(per_level=30 * each).problems(level, split="heldout"):
            forms.setdefault(canonical_form(problem), problem)
        levels.append(list(forms.values())[:each])
    turns = itertools.zip_longest(*levels)
    return [problem for turn in turns for problem in turn if problem is not None][:count]


def archive(
    language: str, asked: Sequence[Problem], per_level: dict[int, int] | None = None
) -> Index:
    """Return an index of all parts' solutions, those of the problems asked among them."""
    problems = {problem.id: problem for problem in asked}
    for level, count in (per_level or _PER_LEVEL).items():
        problems |= {p.id: p for p in SyntheticSuite(per_level=count).problems(level)}
    return Index.from_entries(
        IndexEntry(
            problem.source,
            solve(problem, cast(Target, language), zlib.crc32(problem.id.encode())).source,
            language,
            problem_id=problem.id,
            name=problem.name,
            form=canonical_form(problem),
        )
        for problem in problems.values()
    )


def shown(index: Index, problem: Problem, exclusions: str) -> list[IndexEntry]:
    """Return the entries that a prompt would show.

    Args:
        index: For ``1-3`` and ``all``, without what other problems exclude.
        problem: The problem asked.
        exclusions: One of `EXCLUSIONS`.
    """
    loose = exclusions in ("none", "1")
    pool = index.search(problem, len(index.entries), same_problem=loose).neighbours
    if exclusions == "1":
        own = set(keys_of(problem)["id"])
        pool = tuple(n for n in pool if not own & set(keys_of_entry(n.entry)["id"]))
    return [neighbour.entry for neighbour in pool[:K]]


def answers(entries: Sequence[IndexEntry], problem: Problem) -> dict[str, list[Kernel]]:
    """Return what the agent answers in each way, the likeliest first."""
    adapted = [joined([(entry.reference, entry.kernel)], problem.source) for entry in entries]
    wanted = operators(problem.source)

    def alike(pair: tuple[IndexEntry, IndexEntry]) -> float:
        views = [name for entry in pair for name in operators(entry.reference)]
        return difflib.SequenceMatcher(a=views, b=wanted, autojunk=False).ratio()

    chained = ""
    for pair in sorted(itertools.permutations(entries, 2), key=alike, reverse=True):
        chained = joined([(entry.reference, entry.kernel) for entry in pair], problem.source)
        if chained:
            break
    texts = {
        "accepted": [entry.kernel for entry in entries],
        "adapted": [text for text in adapted if text],
        "chained": [chained] if chained else [],
    }
    language = entries[0].language if entries else ""
    return {way: [Kernel(text, language) for text in each] for way, each in texts.items()}


@dataclass(frozen=True, slots=True)
class _Case:
    """A problem, with what is shown for it and answered to it."""

    problem: Problem
    exclusions: str
    entries: int
    answers: dict[str, list[Kernel]]


def measured(
    language: str,
    asked: Sequence[Problem],
    index: Index,
    judged: BuildVerdicts,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return rows, and what the copy test found.

    Args:
        language: Language of the kernels.
        asked: The problems, the levels in turn.
        index: Entries, those that give answers away among them.
        judged: Judges without taking times, and remembers verdicts.
        report: Told of each step.
    """
    strict, _ = index.without_answers(asked)
    cases: list[_Case] = []
    for start in range(0, len(asked), _AT_ONCE):
        part = asked[start : start + _AT_ONCE]
        for exclusions in EXCLUSIONS[:-1]:
            searched = strict if exclusions == "1-3" else index
            some = [_case(searched, problem, exclusions) for problem in part]
            _judge(judged, some)
            cases += some
        report(f"{start + len(part)} of {len(asked)} problems with exclusions up to 1-3")
    tested = copy_test(strict, asked, judged, needed=K + _BEYOND, device="cpu")
    report(f"copy test: {len(tested.accepted)} entries leave the index")
    done = [problem for problem in asked if problem.id not in tested.untested]
    last = [_case(tested.index, problem, EXCLUSIONS[-1]) for problem in done]
    _judge(judged, last)
    found = {"left": len(tested.accepted), "untested": len(tested.untested), "n": len(asked)}
    return list(_rows(language, [*cases, *last], judged)), found


def _case(index: Index, problem: Problem, exclusions: str) -> _Case:
    entries = shown(index, problem, exclusions)
    return _Case(problem, exclusions, len(entries), answers(entries, problem))


def _judge(judged: BuildVerdicts, cases: Sequence[_Case]) -> None:
    """Judge answers in their order, until one of each way is accepted."""
    for place in range(K):
        jobs = [
            Job(case.problem, case.answers[way][place])
            for case in cases
            for way in WAYS
            if place < len(case.answers[way])
            and _solved(judged, case.problem, case.answers[way][:place]) is not True
        ]
        judged.judge(jobs)


def _solved(judged: BuildVerdicts, problem: Problem, kernels: Sequence[Kernel]) -> bool | None:
    """Return whether one is accepted; None if a verdict that it takes to know is missing."""
    said = [judged.of(problem, kernel) for kernel in kernels]
    if any(each is not None and each.correct for each in said):
        return True
    return None if None in said else False


def _rows(language: str, cases: Sequence[_Case], judged: BuildVerdicts) -> Iterator[dict[str, Any]]:
    for exclusions in EXCLUSIONS:
        for level in _PER_LEVEL:
            rows: list[tuple[list[bool], int]] = []
            for case in cases:
                if case.exclusions == exclusions and case.problem.level == level:
                    found = [_solved(judged, case.problem, case.answers[way]) for way in WAYS]
                    if None not in found:
                        rows.append(([each is True for each in found], case.entries))
            if rows:
                sums = {way: sum(f[i] for f, _ in rows) for i, way in enumerate(WAYS)}
                yield {
                    **{"suite": "Synthetic", "language": language, "level": level},
                    **{"exclusions": exclusions, "n": len(rows), **sums},
                    "any": sum(any(found) for found, _ in rows),
                    "three": sum(entries >= K for _, entries in rows),
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verdicts", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--language", default="triton")
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    began = time.perf_counter()
    asked = asked_problems(options.limit)
    index = archive(options.language, asked)
    local = LocalEvaluator("cpu", "strict", options.workers, False)
    judge: Evaluator = CachedEvaluator(local, options.verdicts, owns=True)
    try:
        judged = BuildVerdicts(judge, options.minutes)

        def report(text: str) -> None:
            print(f"{time.perf_counter() - began:.0f} s: {text}", flush=True)

        rows, tested = measured(options.language, asked, index, judged, report)
    finally:
        judge.close()
    for row in rows:
        print(row)
    print(tested)
    if options.out is not None:
        # A language is measured by itself: rows of others stay.
        kept = json.loads(options.out.read_text()) if options.out.exists() else {}
        old = [r for r in kept.get("copy_agent", ()) if r["language"] != options.language]
        result = {
            "machine": machine("torch", "triton"),
            "entries": {**kept.get("entries", {}), options.language: len(index.entries)},
            "copy_agent": [*old, *rows],
            "copy_test": {**kept.get("copy_test", {}), options.language: tested},
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
