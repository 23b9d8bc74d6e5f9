"""How often similar problems are found: the Synthetic suite's held-out problems, asked of the rest.

``python -m benchmarks.retrieval.run`` runs it. Queries are held-out problems of the three levels
without their docstrings, which name the operators, each as written and as another author would
write it (`benchmarks.retrieval.renaming`). The entries are the embedded solutions in Triton; their
references keep nothing but operators, or no docstring, so that docstrings play no part.
What is similar is decided by the suite's own data, not by the view: the sets of operators that two
specifications hold. Per level, method and spelling:

- ``hit3``: one of three is alike (half of the operators of both are shared), among queries for
  which the entries hold such a one;
- ``covered3``: share of a query's operators that three show together;
- ``on_page``: share of the runs of six words of the right kernel that stand in the three kernels.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from benchmarks.retrieval.bm25 import Bm25
from benchmarks.retrieval.renaming import renamed, without_docstrings
from kernelgym.retrieval.cover import cover
from kernelgym.retrieval.embedding import Embedder
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import POOL, Index
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.suites.synthetic.spec import Dot, Rows
from kernelgym.types import Problem

K = 3
ALIKE = 0.5
_WORD = re.compile(r"\w+|[^\w\s]")

Method = Callable[[Index, Problem], Sequence[Entry]]


def operators_of(problem: Problem) -> frozenset[str]:
    """Return the operators that a problem's specification holds."""
    found: set[str] = set()
    for stage in spec_of(problem).stages:
        if isinstance(stage, Rows):
            found |= {step.op for step in stage.before}
            found |= {stage.tail} if stage.tail else set()
        else:
            found.add("dot" if isinstance(stage, Dot) else stage.kind)
        found |= {step.op for step in stage.after}
    return frozenset(found)


def by_chance(index: Index, problem: Problem) -> Sequence[Entry]:
    """Return three entries at random, the same for the same problem."""
    rng = random.Random(problem.id)
    return rng.sample([entry for entry in index.entries if entry.kind == "solution"], K)


def by_words() -> Method:
    """Return what finds the three whose references share most words."""
    known: dict[str, tuple[list[Entry], Bm25]] = {}

    def find(index: Index, problem: Problem) -> Sequence[Entry]:
        if index.digest not in known:
            solutions = [entry for entry in index.entries if entry.kind == "solution"]
            known[index.digest] = solutions, Bm25([entry.reference for entry in solutions])
        solutions, words = known[index.digest]
        out = {e.id for entries in index.excluded_for(problem).values() for e in entries}
        scores = words.scores(problem.source)
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], solutions[i].id))
        return [solutions[i] for i in order if solutions[i].id not in out][:K]

    return find


def by_model(embedder: Embedder, view: str) -> Method:
    """Return what finds the three that a model of text takes for the most similar."""
    known: dict[str, Index] = {}

    def find(index: Index, problem: Problem) -> Sequence[Entry]:
        if index.digest not in known:
            known[index.digest] = Index.from_entries(index.entries, embedder, view=view)
        return [found.entry for found in known[index.digest].search(problem, K).neighbours]

    return find


def by_operators(index: Index, problem: Problem) -> Sequence[Entry]:
    """Return the three most similar entries."""
    return [found.entry for found in index.search(problem, K).neighbours]


def by_cover(index: Index, problem: Problem) -> Sequence[Entry]:
    """Return the three of the most similar that show most operators: what a model is shown."""
    pool = index.search(problem, K + POOL).neighbours
    return [found.entry for found in cover(problem.source, pool, K)]


METHODS: dict[str, Method] = {
    "random": by_chance,
    "BM25": by_words(),
    "operators": by_operators,
    "operators, cover": by_cover,
}


def queries(count: int) -> list[Problem]:
    """Return held-out problems, as many of each level."""
    found: list[Problem] = []
    for level in (1, 2, 3):
        suite = SyntheticSuite(per_level=10 * count)
        found += suite.problems(level, split="heldout")[: count // 3]
    return found


def runs_of_six(source: str) -> set[tuple[str, ...]]:
    """Return all runs of six words of a source."""
    words = _WORD.findall(source)
    return {tuple(words[start : start + 6]) for start in range(len(words) - 5)}


def measured(
    index: Index, asked: Sequence[Problem], models: dict[str, tuple[Embedder, str]]
) -> list[dict[str, Any]]:
    """Return a row per level, method and spelling.

    Args:
        index: What is asked.
        asked: The problems.
        models: Embedders and their views, by the name of the method.
    """
    methods = METHODS | {name: by_model(*each) for name, each in models.items()}
    solutions = [entry for entry in index.entries if entry.kind == "solution"]
    of_entry = {entry.id: operators_of(get_problem(entry.problem_id)) for entry in solutions}
    rows = []
    for again in (False, True):
        for name, method in methods.items():
            seen: dict[int, list[tuple[float | None, float, float]]] = {}
            for number, problem in enumerate(asked):
                source = without_docstrings(problem.source)
                source = renamed(source, number) if again else source
                hidden = Problem(f"asked/{number}", "asked", problem.level, "", source)
                shown = method(index, hidden)
                seen.setdefault(problem.level, []).append(
                    _scores(problem, [entry.id for entry in shown], shown, of_entry)
                )
            for level, scores in seen.items():
                hits = [hit for hit, _, _ in scores if hit is not None]
                rows.append(
                    {
                        "suite": "Synthetic",
                        "level": level,
                        "method": name,
                        "renamed": again,
                        "n": len(scores),
                        "answerable": len(hits),
                        "entries": len(solutions),
                        "hit3": round(fmean(hits), 3),
                        "covered3": round(fmean(covered for _, covered, _ in scores), 3),
                        "on_page": round(fmean(share for _, _, share in scores), 3),
                    }
                )
    return rows


def _scores(
    problem: Problem,
    ids: Sequence[str],
    shown: Sequence[Entry],
    of_entry: dict[str, frozenset[str]],
) -> tuple[float | None, float, float]:
    """Return whether one is alike (None if none could be), operators covered, and runs shown."""
    own = operators_of(problem)

    def alike(other: frozenset[str]) -> bool:
        return len(own & other) >= ALIKE * len(own | other)

    hit = float(any(alike(of_entry[each]) for each in ids))
    possible = any(map(alike, of_entry.values()))
    covered = len(own & frozenset().union(*(of_entry[each] for each in ids))) / len(own)
    right = runs_of_six(solve(problem).source)
    page = set().union(*(runs_of_six(entry.kernel) for entry in shown)) if shown else set()
    return (hit if possible else None), covered, len(right & page) / len(right)
