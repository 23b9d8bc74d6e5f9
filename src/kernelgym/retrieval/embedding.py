"""Embedders: texts become vectors whose products say how alike they are.

Contract: an `Embedder` is a pure function of texts, with a name and a dimension. It is given a view
of each reference: its operators, separated by spaces (`view_text`). The embedded default,
``operators``, counts operators, pairs and triples of neighbours, and the same of their families,
and hashes the counts with signs into 512 numbers. It reads no file and needs no package but NumPy.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelgym.retrieval.names import family
from kernelgym.retrieval.operators import operators

__all__ = ["EMBEDDERS", "Embedder", "OperatorEmbedder", "Vectors", "view_text"]

Vectors: TypeAlias = NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Makes vectors of texts."""

    @property
    def name(self) -> str:
        """What the embedder is called in tables and files."""

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, of length 1; zeros for empty texts."""


def view_text(reference: str) -> str:
    """Return a reference's operators in order, separated by spaces."""
    return " ".join(operators(reference))


class OperatorEmbedder:
    """Hashes operators, their families, and runs of up to three of them.

    Args:
        dimension: Numbers of a vector.
    """

    name = "operators"

    def __init__(self, dimension: int = 512) -> None:
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, of length 1; zeros for empty texts."""
        rows = np.zeros((len(texts), self.dimension), dtype=np.float64)
        for row, text in zip(rows, texts, strict=True):
            for feature, weight in _weights(text.split()).items():
                place, sign = _slot(feature, self.dimension)
                row[place] += sign * weight
        lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows.astype(np.float32)


EMBEDDERS: dict[str, Embedder] = {"operators": OperatorEmbedder()}
"""Embedders by name."""

_RUN_WEIGHTS = (1.0, 0.6, 0.35)
"""Of one operator, a pair and a triple."""
_FAMILY_WEIGHT = 0.5
"""What a family counts beside an operator: relu and gelu are half alike."""


def _weights(names: Sequence[str]) -> dict[str, float]:
    """Return features and weights; a repeated one counts by its square root."""
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
    """Return the place and sign of a feature, by its digest."""
    number = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0
