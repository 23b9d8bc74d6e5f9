"""Archives: entries shown beside an index, known by their digest.

Contract: an archive is the entries that a training run found itself, up to one of its steps. A
`Retrieval` names it by step and digest, since it is data; the entries are kept here, in the
process, by `keep_archive`, which whatever makes them calls (`kernelgym.indexing.growing`). The last
few are kept: prompts of a step are made while it is played and when it is written down.
`archive_index` embeds them as the index beside them is embedded, each text by itself, so that the
same entries have the same vectors however they came together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import lru_cache
from types import MappingProxyType
from typing import cast

import numpy as np

from kernelgym.errors import UsageError
from kernelgym.retrieval.embedding import Embedder, Vectors, view_text
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import Index, embedded
from kernelgym.types import Problem, text_digest

__all__ = [
    "archive_digest",
    "archive_index",
    "check_archive",
    "forget_archives",
    "keep_archive",
]

_KEPT_ARCHIVES = 8
_ARCHIVES: OrderedDict[str, tuple[Entry, ...]] = OrderedDict()
"""By digest; the last one that was kept or asked for is the last."""


def archive_digest(entries: Iterable[Entry]) -> str:
    """Return sixteen hex digits over what is shown of entries."""
    return text_digest("\n".join(sorted(entry.shown for entry in entries)))


def keep_archive(entries: Iterable[Entry]) -> str:
    """Keep entries for prompts to show; return their digest.

    Args:
        entries: Those that can be shown (`kernelgym.retrieval.index.usable`), in any order.
    """
    kept = tuple(sorted(entries, key=lambda entry: entry.id))
    digest = archive_digest(kept)
    _ARCHIVES[digest] = kept
    _ARCHIVES.move_to_end(digest)
    while len(_ARCHIVES) > _KEPT_ARCHIVES:
        _ARCHIVES.popitem(last=False)
    return digest


def forget_archives() -> None:
    """Forget all archives, as a new process has."""
    _ARCHIVES.clear()


def check_archive(digest: str, step: int | None) -> None:
    """Make sure that an archive is kept.

    Raises:
        UsageError: If it is not.
    """
    if digest in _ARCHIVES:
        _ARCHIVES.move_to_end(digest)
        return
    raise UsageError(
        f"the archive of step {step} with digest {digest} is not there: a run's archive is made of "
        "the episodes of its steps before; export the run's own trajectories.jsonl, whole, or make "
        "it with kernelgym.indexing.growing.RecordedArchives(FILE).at(STEP)"
    )


@lru_cache(maxsize=4)
def archive_index(
    digest: str, language: str, beside: Index, held_out: tuple[Problem, ...] = ()
) -> Index:
    """Return an archive's entries in a language as an index.

    Args:
        digest: The archive's; it is kept.
        language: Language of the kernels.
        beside: The index that it is shown beside: it has that embedder and view. Where that was
            tested on a held-out problem, nothing of the archive is shown for it, which was not.
        held_out: Problems whose answers no entry may give away.
    """
    entries = tuple(entry for entry in _ARCHIVES[digest] if entry.language == language)
    texts = [view_text(entry.reference, beside.view) for entry in entries]
    rows = [_row(cast(Hashable, beside.embedder), text) for text in texts]
    vectors = np.array(rows, dtype=np.float32).reshape(len(rows), beside.embedder.dimension)
    vectors.flags.writeable = False
    index = Index(
        *(entries, vectors, beside.embedder, MappingProxyType({}), beside.view),
        passed=beside.passed,
    )
    return index.without_answers(held_out)[0]


@lru_cache(maxsize=8192)
def _row(embedder: Hashable, text: str) -> Vectors:
    row: Vectors = embedded([text], cast(Embedder, embedder))[0]
    return row
