"""The embedded corpus: the Synthetic suite's problems with correct kernels.

Contract: a pure function of language and size, made once per process from text alone; nothing is
downloaded or run. Problems are those of the parts ``warmstart`` and ``rl``: none has the canonical
form of a held-out one. Of problems that differ in nothing but names and numbers, one is kept. The
suite's tests judge its kernels, so each entry says ``correct``.

For the CPU's sizes there are repairs, too: broken kernels of the suite with what the judge said of
each, which ``synthetic_repairs.tsv`` holds, and the correct kernel that differs least. The file is
written by ``benchmarks.retrieval.synthetic_repairs``; a row whose kernel the suite writes otherwise
now is passed over.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import cast

from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.exclusion import tree_key
from kernelgym.retrieval.index import Index
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import (
    SyntheticSuite,
    broken_variants,
    canonical_form,
    part_of,
    solve,
)
from kernelgym.suites.synthetic.correct import Target, check_target
from kernelgym.suites.synthetic.spec import Preset

__all__ = ["synthetic_entries", "synthetic_index", "synthetic_repairs"]

_PARTS = ("warmstart", "rl")
_PER_LEVEL = {1: 300, 2: 800, 3: 400}
"""Problems that are looked at; levels 1 and 3 have few forms, and more numbers add few."""


@lru_cache(maxsize=8)
def synthetic_index(language: str, size: Preset) -> Index:
    """Return the index of the embedded corpus; made once per process.

    Raises:
        UnsupportedLanguage: If the suite writes no kernels in that language.
    """
    return Index.from_entries(synthetic_entries(language, size))


def synthetic_repairs(language: str) -> Iterator[Entry]:
    """Yield repairs of the suite's broken kernels, in sizes for the CPU."""
    rows = [line.split("\t") for line in _repair_lines()]
    broken: dict[str, dict[str, str]] = {}
    for problem_id, spoken, _, digest, style, category, feedback in rows:
        if spoken != language:
            continue
        problem = get_problem(problem_id)
        if problem_id not in broken:
            variants = broken_variants(problem, cast(Target, language))
            broken[problem_id] = {each.kernel.digest: each.kernel.source for each in variants}
        before = broken[problem_id].get(digest)
        if before is None:
            continue
        yield Entry(
            "repair",
            problem.source,
            solve(problem, cast(Target, language), int(style)).source,
            language,
            before=before,
            problem_id=problem.id,
            name=problem.name,
            form=canonical_form(problem),
            origin="Synthetic",
            licence="MIT",
            verdict="correct",
            feedback=json.loads(feedback),
            category=category,
            device="cpu",
        )


def _repair_lines() -> list[str]:
    text = files("kernelgym.retrieval").joinpath("synthetic_repairs.tsv").read_text("utf-8")
    return text.splitlines()


def synthetic_entries(language: str, size: Preset = "cpu") -> Iterator[Entry]:
    """Yield the corpus: reference and kernel of each problem.

    Args:
        language: Language of the kernels.
        size: ``cpu`` for small tensors, ``gpu`` for those worth timing; kernels' blocks differ.

    Raises:
        UnsupportedLanguage: If the suite writes no kernels in that language.
    """
    check_target(language)
    seen: set[str] = set()
    for level, count in _PER_LEVEL.items():
        for problem in SyntheticSuite(size=size, per_level=count).problems(level):
            form, tree = canonical_form(problem), tree_key(problem.source)
            if tree in seen or part_of(form) not in _PARTS:
                continue
            seen.add(tree)
            # Styles differ from entry to entry, as those of several authors do.
            style = zlib.crc32(problem.id.encode())
            yield Entry(
                "solution",
                problem.source,
                solve(problem, cast(Target, language), style).source,
                language,
                problem_id=problem.id,
                name=problem.name,
                form=form,
                origin="Synthetic",
                licence="MIT",
                verdict="correct",
            )
    if size == "cpu":
        yield from synthetic_repairs(language)
