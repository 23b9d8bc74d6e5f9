"""Archives: solved problems that a training run found itself, shown in prompts beside an index.

Contract: an archive holds the entries that a run found before one of its steps. A `Retrieval` names
it by step and digest, since it is data; the entries are kept in this process by `keep_archive`,
which `kernelgym.indexing.growing` calls. The eight that were used last are kept. `archive_index`
embeds an archive as the index beside it is embedded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import cast

import numpy as np

from kernelgym.errors import UsageError
from kernelgym.retrieval.embedding import Embedder, Vectors, embedded
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.index import Index
from kernelgym.types import Problem, text_digest

_KEPT_ARCHIVES = 8
_ARCHIVES: OrderedDict[str, tuple[IndexEntry, ...]] = OrderedDict()
"""Entries of kept archives by the archive's digest, in order of use: the latest used is last."""


def archive_digest(entries: Iterable[IndexEntry]) -> str:
    """Return sixteen hexadecimal digits of a digest over the texts of entries that prompts show."""
    return text_digest("\n".join(sorted(entry.shown for entry in entries)))


def keep_archive(entries: Iterable[IndexEntry]) -> str:
    """Keep entries of an archive for prompts to show; return their digest.

    Args:
        entries: Entries that can be shown, in any order.
    """
    kept = tuple(sorted(entries, key=lambda entry: entry.id))
    digest = archive_digest(kept)
    _ARCHIVES[digest] = kept
    _ARCHIVES.move_to_end(digest)
    while len(_ARCHIVES) > _KEPT_ARCHIVES:
        _ARCHIVES.popitem(last=False)
    return digest


def forget_archives() -> None:
    """Forget all archives, so that the process is like a new one."""
    _ARCHIVES.clear()


def archive_index(
    digest: str, step: int | None, language: str, beside: Index, held_out: tuple[Problem, ...] = ()
) -> Index:
    """Return an archive's entries in a language as an index.

    Args:
        digest: Digest of the archive.
        step: Step of the run that it belongs to.
        language: Language of the kernels.
        beside: Index that it is shown beside, whose embedder it takes. For a held-out problem that
            the index was tested on, nothing of the archive is shown, since it was not tested.
        held_out: Problems whose answers no entry may give away.

    Raises:
        UsageError: If the archive is not kept.
    """
    if digest not in _ARCHIVES:
        raise UsageError(
            f"the archive of step {step} with digest {digest} is not there: a run's archive is "
            "made of the episodes of its steps before; export the run's own trajectories.jsonl, "
            "whole"
        )
    _ARCHIVES.move_to_end(digest)
    return _archive_index(digest, language, beside, held_out)


@lru_cache(maxsize=4)
def _archive_index(
    digest: str, language: str, beside: Index, held_out: tuple[Problem, ...]
) -> Index:
    entries = tuple(entry for entry in _ARCHIVES[digest] if entry.language == language)
    embedder = cast(Hashable, beside.embedder)
    rows = [_row(embedder, entry.reference) for entry in entries]
    vectors = np.array(rows, dtype=np.float32).reshape(len(rows), beside.embedder.dimension)
    index = Index(entries, vectors, beside.embedder, passed=beside.passed)
    return index.without_answers(held_out)[0]


@lru_cache(maxsize=8192)
def _row(embedder: Hashable, reference: str) -> Vectors:
    """Return the vector of a reference, cached, since archives of successive steps share most."""
    row: Vectors = embedded([reference], cast(Embedder, embedder))[0]
    return row
