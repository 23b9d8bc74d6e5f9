"""The embedded index: the Synthetic suite's problems with correct kernels.

Contract: a pure function of language and size, made once per process from text alone; nothing is
downloaded or run. Problems are those of the parts ``warmstart`` and ``rl``: none has the canonical
form of a held-out one. Of problems that differ in nothing but names and numbers, one is kept. The
suite's tests judge its kernels, so each entry says ``correct``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.exclusion import tree_key
from kernelgym.retrieval.index import Index
from kernelgym.suites.synthetic import (
    SyntheticSuite,
    Target,
    canonical_form,
    part_of,
    reaches,
    solve,
)
from kernelgym.suites.synthetic.solve import check_target
from kernelgym.suites.synthetic.spec import Preset

_PARTS = ("warmstart", "rl")
_PER_LEVEL = {1: 300, 2: 800, 3: 400}
"""Number of problems read of each level; levels 1 and 3 have few distinct forms."""


def size_for(device: str) -> Preset:
    """Return the size of the suite's problems whose kernels suit a device."""
    return "cpu" if device.partition(":")[0] == "cpu" else "gpu"


@lru_cache(maxsize=8)
def synthetic_index(language: str, size: Preset) -> Index:
    """Return the embedded index; made once per process.

    Raises:
        UnsupportedLanguage: If the suite writes no kernels in that language.
    """
    return Index.from_entries(synthetic_entries(language, size))


def synthetic_entries(language: str, size: Preset = "cpu") -> Iterator[IndexEntry]:
    """Yield the entries of the embedded index: reference and kernel of each problem.

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
            if not reaches(cast(Target, language), problem):
                continue
            seen.add(tree)
            # Styles differ from entry to entry, as those of several authors do.
            style = zlib.crc32(problem.id.encode())
            yield IndexEntry(
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
