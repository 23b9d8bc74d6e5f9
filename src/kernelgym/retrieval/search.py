"""Exact search by products: the best rows of a matrix.

Contract: `best` returns the places of at least the best so many rows among those looked at. Two
engines give the same answer once the rows are scored again in double precision, which `Index` does:
``numpy``, and ``faiss`` (`IndexFlatIP`), which keeps a copy of the rows in memory. FAISS is taken
where it is installed and an index has rows enough to gain by it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UnknownName, UsageError
from kernelgym.retrieval.embedding import Vectors

__all__ = ["ENGINES", "Engine", "FaissEngine", "NumpyEngine", "engine_of"]

ENGINES = ("auto", "numpy", "faiss")
"""Names that `engine_of` takes."""
MARGIN = 1e-5
"""Products in float32 that are closer than this may be equal: 512 terms of at most 1."""
_WORTH_FAISS = 20_000
"""Rows above which FAISS is taken by itself; importing it costs more than searching fewer."""

Places = NDArray[np.intp]


class Engine(Protocol):
    """Finds the best rows."""

    @property
    def name(self) -> str:
        """One of `ENGINES`."""

    def best(self, query: Vectors, places: Places, wanted: int) -> Places:
        """Return places of the best rows, and of all ties.

        Args:
            query: One row.
            places: The rows that are looked at, ascending; more than `wanted`.
            wanted: How many at least.
        """


class NumpyEngine:
    """Multiplies all rows."""

    name = "numpy"

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def best(self, query: Vectors, places: Places, wanted: int) -> Places:
        """See `Engine.best`."""
        rough = (self._vectors @ query)[places]
        least = np.partition(rough, len(rough) - wanted)[len(rough) - wanted]
        chosen: Places = places[rough >= least - MARGIN]
        return chosen


class FaissEngine:
    """Asks FAISS, which is told which rows to look at.

    Raises:
        UsageError: If FAISS is not installed.
    """

    name = "faiss"

    def __init__(self, vectors: Vectors) -> None:
        try:
            import faiss
        except ImportError:
            raise UsageError(
                "FAISS is not installed; `pip install kernelgym[rag]`, or search with NumPy"
            ) from None
        self._faiss: Any = faiss
        self._index: Any = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def best(self, query: Vectors, places: Places, wanted: int) -> Places:
        """See `Engine.best`."""
        rows = np.ascontiguousarray(query[None], dtype=np.float32)
        ids = np.ascontiguousarray(places, dtype=np.int64)
        selector = self._faiss.IDSelectorBatch(ids)
        given = self._faiss.SearchParameters(sel=selector)
        scores, _ = self._index.search(rows, wanted, params=given)
        least = float(scores[0, -1]) - MARGIN
        _, _, found = self._index.range_search(rows, least, params=given)
        return np.sort(found).astype(np.intp)


def engine_of(name: str, vectors: Vectors) -> Engine:
    """Return an engine by name.

    Args:
        name: One of `ENGINES`; ``auto`` takes FAISS for a large matrix, where it is installed.
        vectors: The rows.

    Raises:
        UnknownName: If there is no such engine.
        UsageError: If FAISS is asked for and not installed.
    """
    if name not in ENGINES:
        raise UnknownName("engine of search", name, ENGINES)
    if name == "faiss" and len(vectors):
        return FaissEngine(vectors)
    if name == "auto" and len(vectors) >= _WORTH_FAISS:
        try:
            return FaissEngine(vectors)
        except UsageError:
            pass
    return NumpyEngine(vectors)
