"""An index: entries with their vectors, searched exactly.

Contract: frozen once made; the same entries give the same index, and the same query the same
answer. Search is exact: all products in float32, the best `k` + 32 and all that tie with the last
of them again in float64, ties by entry id. Entries that would give the answer away are excluded
before the search, so that k means k. `Index.left_out` counts entries that could not be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UnknownName, UsageError
from kernelgym.retrieval.embedding import EMBEDDERS, VIEWS, Embedder, Vectors, view_name, view_text
from kernelgym.retrieval.entry import KINDS, Entry, unusable
from kernelgym.retrieval.exclusion import REASONS, Keys, keys_of, keys_of_entry
from kernelgym.retrieval.search import Engine, engine_of
from kernelgym.types import Problem, text_digest

__all__ = ["POOL", "Found", "Index", "Neighbour", "embedded", "usable"]

POOL = 32
"""How many more than k are scored again, and chosen from."""
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
    view: str = "operators"
    """What of a reference is embedded; see `kernelgym.retrieval.embedding.VIEWS`."""
    keys: tuple[Keys, ...] = field(default=(), repr=False)
    """By what each entry's problem is known again; found out if empty."""
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """By a held-out problem's digest, the only entries that may be shown for it: a judge found that
    their kernels do not solve it."""
    engine: Engine | None = field(default=None, repr=False)
    """What multiplies; NumPy if None."""
    digest: str = field(init=False)
    """Sixteen hex digits over the embedder's name, the view, the tables that name operators, and
    what is shown of all entries."""
    _places: Mapping[tuple[str, str], tuple[int, ...]] = field(init=False, repr=False)
    _by_kind: Mapping[str, NDArray[np.bool_]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise UnknownName("view of a reference", self.view, VIEWS)
        said = [self.embedder.name + view_name(self.view), *(entry.shown for entry in self.entries)]
        said += [f"{key} {' '.join(ids)}" for key, ids in sorted(self.passed.items())]
        object.__setattr__(self, "digest", text_digest("\n".join(said)))
        if not self.keys:
            object.__setattr__(self, "keys", tuple(map(keys_of_entry, self.entries)))
        if self.engine is None:
            object.__setattr__(self, "engine", engine_of("numpy", self.vectors))
        places: dict[tuple[str, str], list[int]] = {}
        for place, known in enumerate(self.keys):
            for reason, keys in known.items():
                for key in keys:
                    places.setdefault((reason, key), []).append(place)
        frozen = {key: tuple(found) for key, found in places.items()}
        object.__setattr__(self, "_places", MappingProxyType(frozen))
        kinds = np.array([entry.kind for entry in self.entries], dtype=object)
        by_kind = {kind: np.asarray(kinds == kind, dtype=bool) for kind in KINDS}
        object.__setattr__(self, "_by_kind", MappingProxyType(by_kind))

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[Entry],
        embedder: Embedder | None = None,
        *,
        view: str = "operators",
    ) -> Index:
        """Return an index; unusable entries are left out and counted.

        Args:
            entries: In any order; one that comes twice is kept once.
            embedder: Makes the vectors; the embedded ``operators`` if None.
            view: What of a reference it is given.

        Raises:
            UsageError: If the embedder does not give one finite row of its dimension per text.
        """
        embedder = EMBEDDERS["operators"] if embedder is None else embedder
        if view not in VIEWS:
            raise UnknownName("view of a reference", view, VIEWS)
        ordered, left_out = usable(entries)
        texts = [view_text(entry.reference, view) for entry in ordered]
        vectors = embedded(texts, embedder)
        vectors.flags.writeable = False
        return cls(ordered, vectors, embedder, MappingProxyType(left_out), view)

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder that `kernelgym.retrieval.folder.read_index` reads.

        Raises:
            UsageError: If the folder is there and is no index, or cannot be written.
        """
        from kernelgym.retrieval.folder import split_by_language, write_index

        write_index(folder, split_by_language(self))

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
        places, excluded = self._looked_at(problem, kinds, same_problem)
        view = view_text(problem.source, self.view)
        if not len(places) or not view or k < 1:
            return Found((), MappingProxyType(excluded))
        query = embedded([view], self.embedder, query=True)[0]
        wanted = k + POOL
        assert self.engine is not None
        best = self.engine.best(query, places, wanted) if len(places) > wanted else places
        exact = (self.vectors[best].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        scores = [round(float(score), _DIGITS) for score in exact]
        order = sorted(range(len(best)), key=lambda i: (-scores[i], self.entries[best[i]].id))
        neighbours = (Neighbour(self.entries[best[i]], scores[i]) for i in order[:k])
        return Found(tuple(neighbours), MappingProxyType(excluded))

    def allowed(
        self, problem: Problem, kinds: Collection[str], *, same_problem: bool = False
    ) -> NDArray[np.intp]:
        """Return places of entries that may be shown for a problem.

        Args:
            problem: The problem asked.
            kinds: Kinds of entries that are looked at.
            same_problem: Exclude nothing.
        """
        return self._looked_at(problem, kinds, same_problem)[0]

    def _looked_at(
        self, problem: Problem, kinds: Collection[str], same_problem: bool
    ) -> tuple[NDArray[np.intp], dict[str, int]]:
        """Return places that are looked at, and counts of what is excluded."""
        looked_at = np.zeros(len(self.entries), dtype=bool)
        for kind in kinds:
            looked_at |= self._by_kind[kind]
        excluded: dict[str, int] = {}
        if not same_problem:
            excluded = self._exclude(keys_of(problem), looked_at)
            self._keep_to_passed(problem, looked_at)
        return np.flatnonzero(looked_at), excluded

    def without(self, out: Collection[str]) -> Index:
        """Return the index without some entries.

        Args:
            out: Their ids.
        """
        if not out:
            return self
        own = [place for place, entry in enumerate(self.entries) if entry.id not in out]
        return replace(
            self,
            entries=tuple(self.entries[place] for place in own),
            vectors=self.vectors[own],
            keys=tuple(self.keys[place] for place in own),
            engine=None,
        )

    def without_answers(self, held_out: Iterable[Problem]) -> tuple[Index, dict[str, int]]:
        """Return the index without what held-out problems exclude, and counts by reason."""
        reasons: dict[str, str] = {}
        for problem in held_out:
            for reason, entries in self.excluded_for(problem).items():
                for entry in entries:
                    reasons.setdefault(entry.id, reason)
        return self.without(reasons.keys()), dict(Counter(reasons.values()))

    def excluded_for(self, problem: Problem) -> Mapping[str, tuple[Entry, ...]]:
        """Return by reason the entries that would give a problem's answer away."""
        keys = keys_of(problem)
        looked_at = np.ones(len(self.entries), dtype=bool)
        found: dict[str, tuple[Entry, ...]] = {}
        for reason in REASONS:
            before = looked_at.copy()
            self._exclude({reason: keys[reason]}, looked_at)
            out = np.flatnonzero(before & ~looked_at)
            if len(out):
                found[reason] = tuple(self.entries[place] for place in out)
        return found

    def _exclude(self, keys: Keys, looked_at: NDArray[np.bool_]) -> dict[str, int]:
        """Take out entries that share a key; return counts by reason."""
        counts: dict[str, int] = {}
        for reason in keys:
            places = {p for key in keys[reason] for p in self._places.get((reason, key), ())}
            still = [place for place in places if looked_at[place]]
            if still:
                counts[reason] = len(still)
                looked_at[still] = False
        return counts

    def _keep_to_passed(self, problem: Problem, looked_at: NDArray[np.bool_]) -> None:
        """Look only at entries that passed a copy test."""
        passed = self.passed.get(problem.digest)
        if passed is not None:
            wanted = frozenset(passed)
            looked_at &= np.array([entry.id in wanted for entry in self.entries], dtype=bool)


def usable(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], dict[str, int]]:
    """Return entries that can be shown, and counts of the others."""
    kept: dict[str, Entry] = {}
    left_out: Counter[str] = Counter()
    for entry in entries:
        if reason := unusable(entry):
            left_out[reason] += 1
        else:
            kept[entry.id] = entry
    return tuple(kept[entry_id] for entry_id in sorted(kept)), dict(left_out)


def embedded(texts: Sequence[str], embedder: Embedder, *, query: bool = False) -> Vectors:
    """Return an embedder's vectors, checked.

    Args:
        texts: What is embedded.
        embedder: Makes the vectors.
        query: They are asked, not searched.

    Raises:
        UsageError: If they are not one finite row of its dimension per text.
    """
    vectors = np.asarray(embedder.embed(texts, query=query), dtype=np.float32)
    if vectors.shape != (len(texts), embedder.dimension) or not np.isfinite(vectors).all():
        raise UsageError(
            f"embedder {embedder.name!r} gave an array of shape {vectors.shape} for {len(texts)} "
            f"texts; it must give one finite row of {embedder.dimension} numbers per text"
        )
    return vectors
