"""An index: entries with their vectors, searched exactly.

Contract: frozen once made; the same entries give the same index, and the same query the same
answer. Search is exact: all products in float32, then the best `k` + 32 again in float64, ties by
entry id. Entries that would give the answer away are excluded before the search, so that k means k.
`Index.left_out` counts entries that could not be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kernelgym.retrieval.embedding import Embedder, OperatorEmbedder, Vectors, embedded
from kernelgym.retrieval.entry import IndexEntry, unusable
from kernelgym.retrieval.exclusion import Keys, keys_of, keys_of_entry
from kernelgym.retrieval.idioms import tables_digest
from kernelgym.retrieval.nearest_rows import SearchEngine, search_engine
from kernelgym.types import Problem, text_digest

_POOL = 32
"""Number of entries beyond k whose products are computed again in float64."""
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry that a search found, and its similarity to the problem."""

    entry: IndexEntry
    score: float
    """Cosine similarity of the vectors of entry and problem, from -1 to 1."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search."""

    neighbours: tuple[Neighbour, ...]
    """Entries that were found, the most similar first."""
    excluded: Mapping[str, int]
    """Number of entries that were excluded, by a reason of `kernelgym.retrieval.exclusion`."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Entries that can be searched; made by `from_entries`."""

    entries: tuple[IndexEntry, ...]
    """Entries in the order of their ids."""
    vectors: Vectors = field(repr=False)
    """Matrix of one row per entry."""
    embedder: Embedder = field(repr=False)
    """Embedder that made the vectors."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of entries that could not be used, by a reason of
    `kernelgym.retrieval.entry.UNUSABLE`."""
    keys: tuple[Keys, ...] = field(default=(), repr=False)
    """Exclusion keys of each entry's problem (`kernelgym.retrieval.exclusion`); computed if empty.
    """
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Ids of the only entries that may be shown for a held-out problem, by the problem's digest. A
    judge found that the kernels of these entries do not solve the problem.
    """
    engine: SearchEngine | None = field(default=None, repr=False)
    """Engine that searches the vectors; NumPy if None."""
    digest: str = field(init=False)
    """Sixteen hex digits over the embedder's name, the tables that name operators, what is shown
    of all entries, and `passed`."""
    _places: Mapping[tuple[str, str], list[int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        said = [self.embedder.name, tables_digest(), *(entry.shown for entry in self.entries)]
        said += [f"{key} {' '.join(ids)}" for key, ids in sorted(self.passed.items())]
        object.__setattr__(self, "digest", text_digest("\n".join(said)))
        if not self.keys:
            object.__setattr__(self, "keys", tuple(map(keys_of_entry, self.entries)))
        if self.engine is None:
            object.__setattr__(self, "engine", search_engine("numpy", self.vectors))
        places: dict[tuple[str, str], list[int]] = {}
        for place, known in enumerate(self.keys):
            for reason, keys in known.items():
                for key in keys:
                    places.setdefault((reason, key), []).append(place)
        object.__setattr__(self, "_places", places)

    @classmethod
    def from_entries(cls, entries: Iterable[IndexEntry], embedder: Embedder | None = None) -> Index:
        """Return an index; unusable entries are left out and counted.

        Args:
            entries: Entries in any order; one that comes twice is kept once.
            embedder: Embedder that makes the vectors; the default ``operators`` if None.

        Raises:
            UsageError: If the embedder does not give one finite row of its dimension per entry.
        """
        embedder = OperatorEmbedder() if embedder is None else embedder
        ordered, left_out = usable(entries)
        vectors = embedded([entry.reference for entry in ordered], embedder)
        return cls(ordered, vectors, embedder, MappingProxyType(left_out))

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder that `kernelgym.retrieval.folder.read_index` reads.

        Raises:
            UsageError: If the folder is there and is not an index, or cannot be written.
        """
        from kernelgym.retrieval.folder import write_index

        languages = sorted({entry.language for entry in self.entries})
        write_index(
            folder,
            {
                name: self.without(e.id for e in self.entries if e.language != name)
                for name in languages
            },
        )

    def search(self, problem: Problem, k: int, *, same_problem: bool = False) -> SearchResult:
        """Return the `k` entries most like a problem, and how many were excluded.

        Args:
            problem: The problem asked.
            k: Most entries that are returned; fewer if the index holds no more.
            same_problem: True to exclude nothing.
        """
        looked_at = np.ones(len(self.entries), dtype=bool)
        excluded: dict[str, int] = {}
        if not same_problem:
            excluded = dict(Counter(self._exclude(problem, looked_at).values()))
            if (passed := self.passed.get(problem.digest)) is not None:
                looked_at &= np.array([entry.id in passed for entry in self.entries], dtype=bool)
        places = np.flatnonzero(looked_at)
        query = embedded([problem.source], self.embedder, query=True)[0]
        if not len(places) or not query.any():
            return SearchResult((), MappingProxyType(excluded))
        assert self.engine is not None
        wanted = k + _POOL
        best = self.engine(query, places, wanted) if len(places) > wanted else places
        exact = (self.vectors[best].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        scores = [round(float(score), _DIGITS) for score in exact]
        order = sorted(range(len(best)), key=lambda i: (-scores[i], self.entries[best[i]].id))
        neighbours = (Neighbour(self.entries[best[i]], scores[i]) for i in order[:k])
        return SearchResult(tuple(neighbours), MappingProxyType(excluded))

    def without(self, ids: Iterable[str]) -> Index:
        """Return the index without the entries of these ids."""
        out = set(ids)
        own = [place for place, entry in enumerate(self.entries) if entry.id not in out]
        return replace(
            self,
            entries=tuple(self.entries[place] for place in own),
            vectors=self.vectors[own],
            keys=tuple(self.keys[place] for place in own),
            engine=None,
        )

    def without_answers(self, held_out: Iterable[Problem]) -> tuple[Index, dict[str, int]]:
        """Return the index without entries that held-out problems exclude, and counts by reason."""
        looked_at = np.ones(len(self.entries), dtype=bool)
        found: dict[int, str] = {}
        for problem in held_out:
            found |= self._exclude(problem, looked_at)
        return self.without(self.entries[place].id for place in found), dict(
            Counter(found.values())
        )

    def _exclude(self, problem: Problem, looked_at: NDArray[np.bool_]) -> dict[int, str]:
        """Exclude the entries that share a key with a problem; return their places with reasons."""
        found: dict[int, str] = {}
        for reason, keys in keys_of(problem).items():
            for key in keys:
                for place in self._places.get((reason, key), ()):
                    if looked_at[place]:
                        looked_at[place] = False
                        found[place] = reason
        return found


def usable(entries: Iterable[IndexEntry]) -> tuple[tuple[IndexEntry, ...], dict[str, int]]:
    """Return the entries that can be shown, sorted by id, and counts of the others by reason."""
    kept: dict[str, IndexEntry] = {}
    left_out: Counter[str] = Counter()
    for entry in entries:
        if reason := unusable(entry):
            left_out[reason] += 1
        else:
            kept[entry.id] = entry
    return tuple(kept[entry_id] for entry_id in sorted(kept)), dict(left_out)
