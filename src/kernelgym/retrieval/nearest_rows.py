"""Exact search: the rows of a matrix with the largest products with a query.

Contract: an engine is made for the rows of one matrix and returns the places of at least the best
so many of those that are looked at, in ascending order. ``numpy`` is the default; ``faiss`` asks
FAISS's `IndexFlatIP`, which keeps a copy of the rows. Where more than 32 rows tie with the last one
wanted, FAISS may return others of them than NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UnknownName, UsageError
from kernelgym.retrieval.embedding import Vectors

_MARGIN = 1e-5
"""Difference below which two products in float32 may be equal: 512 terms of at most 1."""

Places: TypeAlias = NDArray[np.intp]
SearchEngine: TypeAlias = Callable[[Vectors, Places, int], Places]
"""Function of a query, the row numbers to search, and the least number of results; see
`search_engine`.
"""


def _numpy_engine(vectors: Vectors) -> SearchEngine:
    def best(query: Vectors, places: Places, wanted: int) -> Places:
        rough = (vectors @ query)[places]
        least = np.partition(rough, len(rough) - wanted)[len(rough) - wanted]
        chosen: Places = places[rough >= least - _MARGIN]
        return chosen

    return best


def _faiss_engine(vectors: Vectors) -> SearchEngine:
    try:
        import faiss
    except ImportError:
        raise UsageError(
            "FAISS is not installed; `pip install kernelgym[rag]`, or search with engine 'numpy'"
        ) from None
    api: Any = faiss
    index = api.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def best(query: Vectors, places: Places, wanted: int) -> Places:
        chosen = api.SearchParameters(sel=api.IDSelectorBatch(places))
        _, found = index.search(query[None].astype(np.float32), wanted, params=chosen)
        return np.sort(found[0]).astype(np.intp)

    return best


ENGINES: dict[str, Callable[[Vectors], SearchEngine]] = {
    "numpy": _numpy_engine,
    "faiss": _faiss_engine,
}
"""Functions that make search engines, by the names that `search_engine` takes."""


def search_engine(name: str, vectors: Vectors) -> SearchEngine:
    """Return the engine that searches the rows of a matrix.

    Args:
        name: ``numpy`` or ``faiss``.
        vectors: The rows.

    Raises:
        UnknownName: If there is no such engine.
        UsageError: If FAISS is asked for and not installed.
    """
    if name not in ENGINES:
        raise UnknownName("engine of search", name, ENGINES)
    return ENGINES[name](vectors)
