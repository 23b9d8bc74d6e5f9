"""An index: entries with their vectors, searched exactly.

Contract: frozen once made; the same entries give the same index, and the same query the same
answer. Search is exact: all products in float32, the best `k` + 32 and all that tie with the last
of them again in float64, ties by entry id. Entries that would give the answer away are excluded
before the search, so that k means k. `Index.left_out` counts entries that could not be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UsageError
from kernelgym.retrieval.embedding import EMBEDDERS, Embedder, Vectors, view_text
from kernelgym.retrieval.entry import Entry, unusable
from kernelgym.retrieval.exclusion import REASONS, Keys, keys_of, keys_of_entry
from kernelgym.types import Problem, text_digest

__all__ = ["POOL", "Found", "Index", "Neighbour"]

POOL = 32
"""How many more than k are scored again, and chosen from."""
_MARGIN = 1e-5
"""Products in float32 that are closer than this may be equal: 512 terms of at most 1."""
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry, and how like the problem it is."""

    entry: Entry
    score: float
    """Cosine of the two vectors, from -1 to 1."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gives."""

    neighbours: tuple[Neighbour, ...]
    """The most similar first."""
    excluded: Mapping[str, int]
    """How many entries were excluded, by reason; see `kernelgym.retrieval.exclusion`."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Entries that can be searched; made by `from_entries`."""

    entries: tuple[Entry, ...]
    """By id."""
    vectors: Vectors = field(repr=False)
    """One row per entry."""
    embedder: Embedder = field(repr=False)
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many entries could not be used, by reason; see `kernelgym.retrieval.entry.UNUSABLE`."""
    digest: str = field(init=False)
    """Sixteen hex digits over the embedder's name and the ids of all entries."""
    _places: Mapping[tuple[str, str], tuple[int, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        said = "\n".join([self.embedder.name, *(entry.id for entry in self.entries)])
        object.__setattr__(self, "digest", text_digest(said))
        places: dict[tuple[str, str], list[int]] = {}
        for place, entry in enumerate(self.entries):
            for reason, keys in keys_of_entry(entry).items():
                for key in keys:
                    places.setdefault((reason, key), []).append(place)
        frozen = {key: tuple(found) for key, found in places.items()}
        object.__setattr__(self, "_places", MappingProxyType(frozen))

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], embedder: Embedder | None = None) -> Index:
        """Return an index; unusable entries are left out and counted.

        Args:
            entries: In any order; one that comes twice is kept once.
            embedder: Makes the vectors; the embedded ``operators`` if None.

        Raises:
            UsageError: If the embedder does not give one finite row of its dimension per text.
        """
        embedder = EMBEDDERS["operators"] if embedder is None else embedder
        kept: dict[str, Entry] = {}
        left_out: Counter[str] = Counter()
        for entry in entries:
            if reason := unusable(entry):
                left_out[reason] += 1
            else:
                kept[entry.id] = entry
        ordered = tuple(kept[entry_id] for entry_id in sorted(kept))
        texts = [view_text(entry.reference) for entry in ordered]
        vectors = _embedded(texts, embedder)
        vectors.flags.writeable = False
        return cls(ordered, vectors, embedder, MappingProxyType(dict(left_out)))

    def search(
        self,
        problem: Problem,
        k: int,
        *,
        kinds: Collection[str] = ("solution",),
        same_problem: bool = False,
    ) -> Found:
        """Return the `k` entries most like a problem, and what was excluded.

        Args:
            problem: The problem asked.
            k: How many at most; fewer if the index holds no more.
            kinds: Kinds of entries that are looked at.
            same_problem: Exclude nothing.
        """
        looked_at = np.array([entry.kind in kinds for entry in self.entries], dtype=bool)
        excluded: dict[str, int] = {}
        if not same_problem:
            excluded = self._exclude(keys_of(problem), looked_at)
        places = np.flatnonzero(looked_at)
        view = view_text(problem.source)
        if not len(places) or not view or k < 1:
            return Found((), MappingProxyType(excluded))
        query = _embedded([view], self.embedder)[0]
        best = _best(self.vectors, query, places, k)
        exact = (self.vectors[best].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        scores = [round(float(score), _DIGITS) for score in exact]
        order = sorted(range(len(best)), key=lambda i: (-scores[i], self.entries[best[i]].id))
        neighbours = (Neighbour(self.entries[best[i]], scores[i]) for i in order[:k])
        return Found(tuple(neighbours), MappingProxyType(excluded))

    def _exclude(self, keys: Keys, looked_at: NDArray[np.bool_]) -> dict[str, int]:
        """Take out entries that share a key; return counts by reason."""
        counts: dict[str, int] = {}
        for reason in REASONS:
            places = {p for key in keys[reason] for p in self._places.get((reason, key), ())}
            still = [place for place in places if looked_at[place]]
            if still:
                counts[reason] = len(still)
                looked_at[still] = False
        return counts


def _best(vectors: Vectors, query: Vectors, places: NDArray[np.intp], k: int) -> NDArray[np.intp]:
    """Return places of the best by float32, and of all ties."""
    rough = (vectors @ query)[places]
    wanted = k + POOL
    if len(places) <= wanted:
        return places
    least = np.partition(rough, len(rough) - wanted)[len(rough) - wanted]
    chosen: NDArray[np.intp] = places[rough >= least - _MARGIN]
    return chosen


def _embedded(texts: Sequence[str], embedder: Embedder) -> Vectors:
    """Return an embedder's vectors, checked.

    Raises:
        UsageError: If they are not one finite row of its dimension per text.
    """
    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    if vectors.shape != (len(texts), embedder.dimension) or not np.isfinite(vectors).all():
        raise UsageError(
            f"embedder {embedder.name!r} gave an array of shape {vectors.shape} for {len(texts)} "
            f"texts; it must give one finite row of {embedder.dimension} numbers per text"
        )
    return vectors
