"""Exact search by products: the best rows of a matrix.

Contract: `best` returns the places of at least the best so many rows among those looked at. Two
engines give the same answer once the rows are scored again in double precision, which `Index` does:
``numpy``, the default, and ``faiss`` (`IndexFlatIP`), which keeps a copy of the rows in memory.
Where ``benchmarks.retrieval.run`` was run, FAISS was no faster; it is there for machines where it
is.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UnknownName, UsageError
from kernelgym.retrieval.embedding import Vectors

__all__ = ["ENGINES", "Engine", "FaissEngine", "NumpyEngine", "Places", "engine_of"]

ENGINES = ("numpy", "faiss")
"""Names that `engine_of` takes."""
MARGIN = 1e-5
"""Products in float32 that are closer than this may be equal: 512 terms of at most 1."""
_TIES = 64
"""Rows beyond those wanted that are looked at for ties."""

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
        given = None
        if len(places) < self._index.ntotal:
            bits = np.zeros(self._index.ntotal, dtype=bool)
            bits[places] = True
            kept = np.packbits(bits, bitorder="little")
            given = self._faiss.SearchParameters(sel=self._faiss.IDSelectorBitmap(kept))
        more = min(len(places), wanted + _TIES)
        scores, found = self._index.search(rows, more, params=given)
        least = float(scores[0, wanted - 1]) - MARGIN
        if more < len(places) and float(scores[0, -1]) >= least:  # more ties than that
            _, _, near = self._index.range_search(rows, least, params=given)
            return np.sort(near).astype(np.intp)
        return np.sort(found[0][scores[0] >= least]).astype(np.intp)


def engine_of(name: str, vectors: Vectors) -> Engine:
    """Return an engine by name.

    Args:
        name: One of `ENGINES`.
        vectors: The rows.

    Raises:
        UnknownName: If there is no such engine.
        UsageError: If FAISS is asked for and not installed.
    """
    if name not in ENGINES:
        raise UnknownName("engine of search", name, ENGINES)
    if name == "faiss" and len(vectors):
        return FaissEngine(vectors)
    return NumpyEngine(vectors)
