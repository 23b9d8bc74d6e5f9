"""Corpora: sources of an index's entries, each named by a text such as ``kernelbook``.

Contract: a corpus is written ``NAME[@REVISION][:PATH]``, or is the path of a file or folder of
rows:

- ``synthetic``: the Synthetic suite's own problems and kernels;
- ``kernelbook``, ``sakana``: public archives, from the hub, or from files in their columns;
- ``trajectories:FILE``: episodes of ours, as JSONL;
- a path: rows of a user's own with columns ``reference`` and ``kernel`` and, if they like, those of
  `OWN_COLUMNS`. What such rows claim of correctness is not read.

Reading yields entries and rows that gave none. Nothing is judged or run here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import UnknownName, UsageError
from kernelgym.indexing.archives import (
    KERNELBOOK,
    SAKANA,
    HubArchive,
    LeftOut,
    kernelbook_entry,
    sakana_entry,
)
from kernelgym.indexing.played import played_entries
from kernelgym.indexing.rows import Row, check_columns, file_rows, hub_rows, text_of
from kernelgym.languages import LANGUAGES
from kernelgym.records.trajectories import read_records
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.synthetic import size_for, synthetic_entries

CORPORA = ("synthetic", "kernelbook", "sakana", "trajectories")
"""Names of the known corpora; the path of a file or folder of rows is a corpus, too."""
OWN_COLUMNS = ("language", "problem_id", "name", "origin", "licence", "provenance")
"""Columns that a user's own rows may have beside ``reference`` and ``kernel``."""
_SYNTHETIC_LANGUAGES = ("triton", "cpp")

Given = Iterator[IndexEntry | LeftOut]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A source of entries for an index, such as a data set on the hub."""

    name: str
    """Name of the corpus: one of `CORPORA`, or ``rows`` for a user's own."""
    path: str = ""
    """File or folder of the corpus; empty for the embedded one and those on the hub."""
    revision: str = ""
    """Commit, tag or branch on the hub; empty for files."""

    def __str__(self) -> str:
        if self.name == "rows":
            return self.path
        revision, path = (
            f"@{self.revision}" * bool(self.revision),
            f":{self.path}" * bool(self.path),
        )
        return f"{self.name}{revision}{path}"


def corpus_of(text: str) -> Corpus:
    """Return the corpus that a text names.

    Raises:
        UnknownName: If it is neither a corpus nor a path that is there.
        UsageError: If it lacks a path, or has one that it does not take.
    """
    head, _, path = text.partition(":")
    name, _, revision = head.partition("@")
    if name not in CORPORA:
        if not Path(text).exists():
            raise UnknownName(
                "corpus", text, CORPORA, "The path of a file or folder of rows is a corpus, too."
            )
        return Corpus("rows", text)
    if name == "trajectories" and not path:
        raise UsageError("corpus 'trajectories' needs a file of episodes: trajectories:FILE")
    if name == "synthetic" and (path or revision):
        raise UsageError(f"corpus 'synthetic' is embedded and takes no path or revision: {text!r}")
    if revision and (path or name == "trajectories"):
        raise UsageError(f"a corpus that is a file has no revision: {text!r}; leave it out")
    if path and not Path(path).exists():
        raise UsageError(f"corpus {text!r} names {path!r}, which is not there")
    pinned = {"kernelbook": KERNELBOOK.revision, "sakana": SAKANA.revision}
    return Corpus(name, path, revision or ("" if path else pinned.get(name, "")))


def read_corpus(corpus: Corpus, languages: tuple[str, ...], device: str) -> Given:
    """Yield the entries of a corpus, and a `LeftOut` with the reason for each row without one.

    Args:
        corpus: The corpus.
        languages: Languages of the kernels; all if empty.
        device: Device that the kernels are for.

    Raises:
        UsageError: If it cannot be read, or has other columns.
    """
    for found in _READERS[corpus.name](corpus, languages, device):
        if isinstance(found, IndexEntry) and languages and found.language not in languages:
            found = LeftOut("language")
        yield found


def _synthetic(corpus: Corpus, languages: tuple[str, ...], device: str) -> Given:
    for language in _SYNTHETIC_LANGUAGES:
        if not languages or language in languages:
            yield from synthetic_entries(language, size_for(device))


def _archive(
    corpus: Corpus, archive: HubArchive, made: Callable[[Row], IndexEntry | LeftOut]
) -> Given:
    rows = (
        file_rows(corpus.path)
        if corpus.path
        else hub_rows(archive.name, corpus.revision, archive.splits)
    )
    for number, row in enumerate(rows):
        if not number:
            check_columns(row, archive.columns, f"corpus {str(corpus)!r}")
        yield made(row)


def _kernelbook(corpus: Corpus, languages: tuple[str, ...], device: str) -> Given:
    return _archive(corpus, KERNELBOOK, kernelbook_entry)


def _sakana(corpus: Corpus, languages: tuple[str, ...], device: str) -> Given:
    return _archive(corpus, SAKANA, sakana_entry)


def _trajectories(corpus: Corpus, languages: tuple[str, ...], device: str) -> Given:
    yield from played_entries(read_records(corpus.path))


def _rows(corpus: Corpus, languages: tuple[str, ...], device: str) -> Given:
    for number, row in enumerate(file_rows(corpus.path), 1):
        where = f"row {number} of {corpus.path}"
        check_columns(row, ("reference", "kernel"), where)
        given: dict[str, Any] = {name: text_of(row, name) for name in OWN_COLUMNS}
        only = languages[0] if len(languages) == 1 else ""
        language = given.pop("language") or only
        if language not in LANGUAGES:
            raise UnknownName(
                "language", language, LANGUAGES, f"{where} names it; or give one --language."
            )
        entry = IndexEntry(text_of(row, "reference"), text_of(row, "kernel"), language, **given)
        yield entry if entry.origin else dataclasses.replace(entry, origin=Path(corpus.path).name)


_READERS: dict[str, Callable[[Corpus, tuple[str, ...], str], Given]] = {
    "synthetic": _synthetic,
    "kernelbook": _kernelbook,
    "sakana": _sakana,
    "trajectories": _trajectories,
    "rows": _rows,
}
