"""BM25 over the words of references, to compare with: what a text search finds."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from benchmarks.retrieval.renaming import without_docstrings

_WORD = re.compile(r"[A-Za-z_]\w*|\d+|[^\w\s]")
_K1, _B = 1.5, 0.75


class Bm25:
    """Scores texts by the words that they share with a query (Robertson and Zaragoza, 2009).

    Args:
        sources: Modules; docstrings and comments do not count.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        counts = [Counter(_words(source)) for source in sources]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / max(1, len(lengths))
        found = Counter(word for count in counts for word in count)
        self._idf = {
            word: math.log(1.0 + (len(sources) - n + 0.5) / (n + 0.5)) for word, n in found.items()
        }
        self._weights = [
            {
                word: n * (_K1 + 1.0) / (n + _K1 * (1.0 - _B + _B * length / mean))
                for word, n in count.items()
            }
            for count, length in zip(counts, lengths, strict=True)
        ]

    def scores(self, source: str) -> list[float]:
        """Return the score of each text."""
        asked = Counter(_words(source))
        return [
            sum(self._idf[word] * weights[word] * n for word, n in asked.items() if word in weights)
            for weights in self._weights
        ]


def _words(source: str) -> list[str]:
    return _WORD.findall(without_docstrings(source))
