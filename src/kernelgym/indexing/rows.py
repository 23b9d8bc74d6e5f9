"""Rows of data sets, from the hub or from files, by `datasets`.

Contract: `hub_rows` reads a local copy where the hub does not answer, and says within ten seconds
when there is neither. `file_rows` reads JSONL, JSON, CSV or Parquet without keeping a copy.
`check_columns` refuses rows that lack a column, with those that are there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from kernelgym.errors import UsageError
from kernelgym.hub import ask_hub, offline

Row: TypeAlias = Mapping[str, Any]
_READERS = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
}


def file_rows(path: str | Path) -> Iterator[Row]:
    """Yield the rows of a file for an index, or of all files of rows in a folder.

    Raises:
        UsageError: If there is no such file, or it cannot be read.
    """
    place = Path(path)
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    files = [file for file in files if file.suffix in _READERS]
    if not files or not all(file.is_file() for file in files):
        raise UsageError(
            f"{str(path)!r} is not a file of rows, and no folder of such files; give a file that "
            f"ends in {', '.join(_READERS)}"
        )
    import datasets

    for file in files:
        try:
            yield from datasets.load_dataset(
                _READERS[file.suffix], data_files=str(file), split="train", streaming=True
            )
        except Exception as error:  # its readers raise errors of a dozen unrelated classes
            raise UsageError(f"{file} cannot be read: {type(error).__name__}: {error}") from None


def hub_rows(name: str, revision: str, splits: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a data set on the hub.

    Args:
        name: Name of the data set.
        revision: Commit, tag or branch; the newest if empty.
        splits: Splits that are read, in this order.

    Raises:
        UsageError: If the hub does not give it and there is no copy.
    """
    import datasets

    why = ask_hub(name, "dataset")
    with offline() if why else contextlib.nullcontext():
        for split in splits:
            try:
                found = datasets.load_dataset(name, revision=revision or None, split=split)
            except Exception as error:
                raise UsageError(
                    f"data set {name!r} cannot be had: the hub says {why or 'nothing against it'}, "
                    f"and reading it failed ({type(error).__name__}: {str(error)[:200]}); download "
                    "it elsewhere and name its file or folder after a colon"
                ) from None
            yield from found


def check_columns(row: Row, needed: Sequence[str], where: str) -> None:
    """Refuse a row that lacks a column.

    Raises:
        UsageError: If it lacks one.
    """
    missing = [name for name in needed if name not in row]
    if missing:
        raise UsageError(f"{where} lacks the columns {', '.join(missing)}; it has {', '.join(row)}")


def text_of(row: Row, name: str) -> str:
    """Return a column of a row as text; items of a list are joined by commas."""
    value = row.get(name)
    if value is None or value != value:  # tables spell a missing text as NaN
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(sorted({str(item) for item in value}))
    return str(value)
