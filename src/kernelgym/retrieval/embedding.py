"""Embedders: texts become vectors whose products say how alike they are.

Contract: an `Embedder` is a pure function of texts, with a name and a dimension. It is given a view
of each reference (`view_text`): its operators, separated by spaces, or its source. The embedded
default, ``operators``, counts operators, pairs and triples of neighbours, and the same of their
families, and hashes the counts with signs into 512 numbers. It reads no file and needs no package
but NumPy.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelgym.retrieval.idioms import SPELLINGS
from kernelgym.retrieval.names import NAMES, family
from kernelgym.retrieval.operators import operators
from kernelgym.retrieval.source import parsed
from kernelgym.types import text_digest

__all__ = [
    "EMBEDDERS",
    "VIEWS",
    "Embedder",
    "OperatorEmbedder",
    "Vectors",
    "view_name",
    "view_text",
]

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

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return one row per text, of length 1; zeros for empty texts.

        Args:
            texts: The texts.
            query: They are asked, not searched; some models embed these otherwise.
        """


def view_text(reference: str, view: str = "operators") -> str:
    """Return what of a reference is embedded.

    Args:
        reference: Source of the problem's module.
        view: ``operators``: its operators in order, separated by spaces; ``source``: the module
            without docstrings, comments and what draws the inputs. See `VIEWS`.
    """
    return VIEWS[view](reference)


def _operators_view(reference: str) -> str:
    return " ".join(operators(reference))


def _source_view(reference: str) -> str:
    tree = parsed(reference)
    if tree is None:
        return ""
    kept = [_bare(node) for node in tree.body if getattr(node, "name", "") not in _UNREAD]
    return ast.unparse(ast.Module([node for node in kept if node is not None], []))


def _bare(node: ast.stmt) -> ast.stmt | None:
    """Return a statement without docstrings; None for a docstring."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return None
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        node = copy.copy(node)
        node.body = [bare for inner in node.body if (bare := _bare(inner)) is not None]
        node.body = node.body or [ast.Pass()]
    return node


VIEWS: dict[str, Callable[[str], str]] = {"operators": _operators_view, "source": _source_view}
"""What of a reference can be embedded, by name."""

_UNREAD = ("get_inputs", "get_init_inputs")
_FIRST_TAXONOMY = "bbe102258ca22272"
"""Digest of the tables by which operators were named before indexes' digests covered them."""


def view_name(view: str) -> str:
    """Return a view's name with what else decides its texts.

    Args:
        view: A name of `VIEWS`. Texts of ``operators`` follow from the tables of operators: other
            tables give another name, so that an index built by them has another digest.
    """
    if view != "operators":
        return f"@{view}"
    tables = taxonomy()
    return "" if tables == _FIRST_TAXONOMY else f"@operators {tables}"


def taxonomy() -> str:
    """Return a digest of the tables that name operators and their families."""
    return text_digest("\n".join(map(_told, (*NAMES, *SPELLINGS))))


def _told(table: Collection[object]) -> str:
    rows = table.items() if isinstance(table, Mapping) else table
    return " ".join(sorted(map(repr, rows)))


class OperatorEmbedder:
    """Hashes operators, their families, and runs of up to three of them.

    Args:
        dimension: Numbers of a vector.
    """

    name = "operators"

    def __init__(self, dimension: int = 512) -> None:
        self.dimension = dimension

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
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
