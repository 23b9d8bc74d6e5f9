"""How often a problem of KernelBench finds one of its own operator family, itself left out.

Queries and entries are the problems of one level; those whose family has no other member there are
left out. Families are those of `kernelgym.suites.facts`. ``KERNELBENCH_ROOT`` names a checkout.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from benchmarks.retrieval.bm25 import Bm25
from benchmarks.retrieval.renaming import renamed
from kernelgym.retrieval.embedding import EMBEDDERS, Embedder, view_text
from kernelgym.suites import suite
from kernelgym.types import Problem

Ranked = Callable[[str], list[float]]

__all__ = ["by_vectors", "leave_one_out"]


def by_vectors(sources: Sequence[str], embedder: Embedder, view: str = "operators") -> Ranked:
    """Return what scores sources by an embedder's vectors."""
    vectors = embedder.embed([view_text(source, view) for source in sources])

    def scores(source: str) -> list[float]:
        query = embedder.embed([view_text(source, view)], query=True)[0]
        return [round(float(score), 6) for score in vectors @ query]

    return scores


def leave_one_out(models: dict[str, tuple[Embedder, str]]) -> list[dict[str, Any]]:
    """Return a row per level, method and spelling.

    Args:
        models: Embedders and their views, by the name of the method; the embedded one is added.
    """
    chosen = {"operators": (EMBEDDERS["operators"], "operators")} | models
    rows = []
    for level in (1, 2, 3):
        problems = suite("KernelBench").problems(level)
        sources = [problem.source for problem in problems]
        methods: dict[str, Ranked] = {"BM25": Bm25(sources).scores}
        for name, (embedder, view) in chosen.items():
            methods[name] = by_vectors(sources, embedder, view)
        methods["random"] = _by_chance(level, len(sources))
        for again, (name, scores) in itertools.product((False, True), methods.items()):
            first, third, asked = _hits(problems, scores, again)
            rows.append(
                {
                    "suite": "KernelBench",
                    "level": level,
                    "method": name,
                    "renamed": again,
                    "n": asked,
                    "entries": len(problems) - 1,
                    "family1": round(first, 3),
                    "family3": round(third, 3),
                }
            )
    return rows


def _by_chance(seed: int, count: int) -> Ranked:
    chance = random.Random(seed)
    return lambda _: [chance.random() for _ in range(count)]


def _hits(problems: Sequence[Problem], scores: Ranked, again: bool) -> tuple[float, float, int]:
    """Return how often the first, and one of three, is of the family; and of how many."""
    members = Counter(problem.family for problem in problems)
    hits: list[tuple[bool, bool]] = []
    for place, problem in enumerate(problems):
        if not problem.family or members[problem.family] < 2:
            continue
        source = renamed(problem.source, place) if again else problem.source
        found = scores(source)
        order = sorted(range(len(problems)), key=lambda i: (-found[i], problems[i].id))
        best = [problems[i].family == problem.family for i in order if i != place][:3]
        hits.append((best[0], any(best)))
    return fmean(one for one, _ in hits), fmean(three for _, three in hits), len(hits)
