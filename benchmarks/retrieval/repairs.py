"""Which key finds a repair of the same defect: the problem, the kernel, or what the judge said.

Queries are the embedded repairs themselves, each asked of those of problems with another canonical
form. A hit is a repair of the same defect, which the suite that broke the kernel knows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import fmean
from typing import Any

from kernelgym.retrieval.embedding import EMBEDDERS, view_text
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.repairs import similar_repairs
from kernelgym.retrieval.synthetic import synthetic_repairs
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import broken_variants

Key = Callable[[Index, Entry], list[Entry]]

__all__ = ["measured"]


def measured(language: str = "triton") -> list[dict[str, Any]]:
    """Return a row per key: how often the first, and one of three, has the same defect."""
    repairs = list(synthetic_repairs(language))
    defects = _defects(repairs, language)
    index = Index.from_entries(repairs)
    chance = random.Random(0)

    def by_chance(index: Index, asked: Entry) -> list[Entry]:
        others = [entry for entry in index.entries if entry.form != asked.form]
        return chance.sample(others, 3)

    def by_problem(index: Index, asked: Entry) -> list[Entry]:
        query = EMBEDDERS["operators"].embed([view_text(asked.reference)])[0]
        scores = index.vectors @ query
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], index.entries[i].id))
        return [e for i in order if (e := index.entries[i]).form != asked.form][:3]

    def by(feedback: bool, kernel: bool, category: bool) -> Key:
        def find(index: Index, asked: Entry) -> list[Entry]:
            found = similar_repairs(
                *(index, get_problem(asked.problem_id), 3),
                feedback=asked.feedback if feedback else "",
                category=asked.category if category else "",
                kernel=asked.before if kernel else "",
            )
            return [neighbour.entry for neighbour in found]

        return find

    keys: dict[str, Key] = {
        "random": by_chance,
        "problem": by_problem,
        "kernel": by(False, True, False),
        "feedback": by(True, False, False),
        "feedback, category, kernel": by(True, True, True),
    }
    rows = []
    for name, find in keys.items():
        hits = []
        for asked in index.entries:
            same = [defects[e.id] == defects[asked.id] for e in find(index, asked)]
            hits.append((same[0], any(same)))
        rows.append(
            {
                "key": name,
                "language": language,
                "n": len(hits),
                "same1": round(fmean(first for first, _ in hits), 3),
                "same3": round(fmean(three for _, three in hits), 3),
            }
        )
    return rows


def _defects(repairs: list[Entry], language: str) -> dict[str, str]:
    """Return what is wrong with the kernel that each repair began with."""
    found: dict[str, str] = {}
    for entry in repairs:
        for broken in broken_variants(get_problem(entry.problem_id), language):  # type: ignore[arg-type]
            if broken.kernel.source == entry.before:
                found[entry.id] = broken.defect
    return found
