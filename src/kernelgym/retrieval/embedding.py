"""Embedders: make vectors of references; the product of two vectors is their similarity.

Contract: an `Embedder` is a pure function of the sources of references, with a name and a
dimension. The default, ``operators``, counts the operators of a reference
(`kernelgym.retrieval.operators`), pairs and triples of neighbours, and the same of their families,
and hashes the counts with signs into 512 numbers. It reads no file and needs no package but NumPy.
Models of text are in `kernelgym.retrieval.embedding_models`.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UsageError
from kernelgym.retrieval.names import family
from kernelgym.retrieval.operators import operators

Vectors: TypeAlias = NDArray[np.float32]


class Embedder(Protocol):
    """Interface of objects that make vectors of references."""

    @property
    def name(self) -> str:
        """Name of the embedder in tables and files."""

    @property
    def dimension(self) -> int:
        """Number of components of a vector."""

    @property
    def record(self) -> Mapping[str, str]:
        """Arguments of `embedding_models.find_embedder` that give this embedder."""

    def embed(self, references: Sequence[str], *, query: bool = False) -> Vectors:
        """Return one row of length 1 for each reference; zeros if nothing in it can be embedded.

        Args:
            references: Sources of references.
            query: True for what is asked, False for what is searched; some models embed these
                differently.
        """


def embedded(references: Sequence[str], embedder: Embedder, *, query: bool = False) -> Vectors:
    """Return an embedder's vectors after checking their shape.

    Args:
        references: Sources of references.
        embedder: Embedder that makes the vectors.
        query: True for what is asked, False for what is searched.

    Raises:
        UsageError: If they are not one finite row of the embedder's dimension per reference.
    """
    vectors = np.asarray(embedder.embed(references, query=query), dtype=np.float32)
    if vectors.shape != (len(references), embedder.dimension) or not np.isfinite(vectors).all():
        raise UsageError(
            f"embedder {embedder.name!r} gave an array of shape {vectors.shape} for "
            f"{len(references)} texts; it must give one finite row of {embedder.dimension} numbers "
            "per text"
        )
    return vectors


class OperatorEmbedder:
    """Embedder that hashes a reference's operators, their families, and runs of up to three.

    Args:
        dimension: Numbers of a vector.
    """

    name = "operators"
    record: Mapping[str, str] = {"model": "operators"}

    def __init__(self, dimension: int = 512) -> None:
        self.dimension = dimension

    def embed(self, references: Sequence[str], *, query: bool = False) -> Vectors:
        """Return one row of length 1 per reference; zeros for one without operators."""
        rows = np.zeros((len(references), self.dimension), dtype=np.float64)
        for row, reference in zip(rows, references, strict=True):
            for feature, weight in _weights(operators(reference)).items():
                place, sign = _slot(feature, self.dimension)
                row[place] += sign * weight
        lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows.astype(np.float32)


_RUN_WEIGHTS = (1.0, 0.6, 0.35)
"""Weights of runs of one, two and three operators, in this order."""
_FAMILY_WEIGHT = 0.5
"""Weight of an operator's family, where the operator itself has weight 1."""


def _weights(names: Sequence[str]) -> dict[str, float]:
    """Return a reference's features with weights that grow with the square root of their counts."""
    families = [family(name) for name in names]
    counts = Counter(_features(names, "o"))
    weights = {key: _RUN_WEIGHTS[len(key) - 2] * math.sqrt(n) for key, n in counts.items()}
    for key, n in Counter(_features(families, "f")).items():
        weights[key] = _FAMILY_WEIGHT * _RUN_WEIGHTS[len(key) - 2] * math.sqrt(n)
    return {" ".join(key): weight for key, weight in weights.items()}


def _features(names: Sequence[str], mark: str) -> Iterator[tuple[str, ...]]:
    for length in range(1, len(_RUN_WEIGHTS) + 1):
        for start in range(len(names) - length + 1):
            yield (mark, *names[start : start + length])


@lru_cache(maxsize=65_536)
def _slot(feature: str, dimension: int) -> tuple[int, float]:
    """Return the position and sign in the vector to which a feature is hashed."""
    number = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0
