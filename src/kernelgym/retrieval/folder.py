"""An index as a folder: a manifest, entries and vectors.

Contract: ``manifest.json`` names the format, the embedder and the digest of each language's index;
a folder ``LANGUAGE/`` holds ``entries.parquet`` and ``vectors.npy``, one row per entry, by id.
Nothing is pickled, and reading runs nothing. `read_index` compares the entries with the digest and
some of the vectors with the embedder's, and maps the vectors into memory; `check_index` compares
all of them. A folder is written beside its place and takes it in one step.

It does not cover files that are cut short while a process has them mapped; replace a folder whole,
as `write_index` does.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernelgym.errors import UnknownName, UsageError
from kernelgym.retrieval.embedding import embedded
from kernelgym.retrieval.embedding_models import find_embedder
from kernelgym.retrieval.entry import TEXTS, IndexEntry, unusable
from kernelgym.retrieval.exclusion import REASONS
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.nearest_rows import search_engine

_FORMAT = 1
"""Version of the folder's format; raised when an older version of kernelgym would misread a folder.
"""
_MANIFEST, _ENTRIES, _VECTORS = "manifest.json", "entries.parquet", "vectors.npy"
_SAMPLED = 16
"""Number of entries that `read_index` embeds again, to check that the embedder is unchanged."""
_ALIKE = 0.999


def write_index(
    folder: str | Path, parts: Mapping[str, Index], *, about: Mapping[str, Any] | None = None
) -> None:
    """Write indexes as one folder; replaces an index that was there.

    Args:
        folder: The folder.
        parts: Indexes by language, of one embedder.
        about: Other facts for the manifest, as JSON data.

    Raises:
        UsageError: If there are no entries, the folder exists and is not an index, or it cannot be
            written.
    """
    out = Path(folder)
    check_place(out)
    kept = {name: index for name, index in parts.items() if index.entries}
    if not kept:
        raise UsageError(f"there is no entry to write to {str(out)!r}; an index holds at least one")
    draft, before = (out.with_name(f".{out.name}.{secrets.token_hex(4)}") for _ in range(2))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        _write(draft, kept, dict(about or {}))
        if out.exists():
            out.rename(before)
        draft.rename(out)
    except OSError as error:
        if before.exists() and not out.exists():
            before.rename(out)
        raise UsageError(
            f"index {str(out)!r} cannot be written: {error.strerror or error}; what was there "
            "stays as it was"
        ) from None
    finally:
        for path in (draft, before):
            shutil.rmtree(path, ignore_errors=True)


def check_place(out: Path) -> None:
    """Check that an index may be written to a folder.

    Raises:
        UsageError: If something else is there.
    """
    if out.is_dir() and (not any(out.iterdir()) or (out / _MANIFEST).is_file()):
        return
    if os.path.lexists(out):
        raise UsageError(
            f"{str(out)!r} exists and is not an index; give another folder, or remove it"
        )


def _write(draft: Path, parts: Mapping[str, Index], about: dict[str, Any]) -> None:
    import pyarrow
    from pyarrow import parquet

    for language, index in parts.items():
        (draft / language).mkdir()
        np.save(draft / language / _VECTORS, np.asarray(index.vectors), allow_pickle=False)
        columns: dict[str, Any] = {
            name: [getattr(entry, name) for entry in index.entries] for name in TEXTS
        }
        speeds = [list(entry.speed) for entry in index.entries]
        columns["speed"] = pyarrow.array(speeds, pyarrow.list_(pyarrow.float64()))
        for reason in REASONS:
            columns[f"key_{reason}"] = [list(keys[reason]) for keys in index.keys]
        parquet.write_table(pyarrow.table(columns), draft / language / _ENTRIES, compression="zstd")
    embedder = next(iter(parts.values())).embedder
    manifest = {
        "format": _FORMAT,
        "embedder": {
            "name": embedder.name,
            "dimension": embedder.dimension,
            **embedder.record,
        },
        "languages": {
            name: {"entries": len(index.entries), "digest": index.digest}
            for name, index in parts.items()
        },
        "passed": {name: dict(index.passed) for name, index in parts.items()},
        **about,
    }
    (draft / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="ascii")


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return an index's manifest.

    Raises:
        UsageError: If the folder is not an index, or one of another format.
    """
    try:
        manifest = json.loads((Path(folder) / _MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{str(folder)!r} is not an index: its {_MANIFEST} cannot be read ({error}); give "
            "'synthetic', or a folder that `kernelgym index build` wrote"
        ) from None
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != _FORMAT:
        raise UsageError(
            f"{str(folder)!r} is an index of format {version!r}, and this version of kernelgym "
            f"reads format {_FORMAT}; build it again"
        )
    found: dict[str, Any] = manifest
    return found


def folder_digest(folder: str | Path, language: str) -> str:
    """Return the digest that a folder's manifest names for a language.

    Raises:
        UsageError: If the folder is not an index, or holds no such language.
    """
    languages = read_manifest(folder)["languages"]
    if language not in languages:
        raise UnknownName("language of the index", language, languages, f"It is {str(folder)!r}.")
    return str(languages[language]["digest"])


def read_index(
    folder: str | Path, language: str, *, model: str = "", engine: str = "numpy"
) -> Index:
    """Return the part of an index that holds kernels in a language.

    Args:
        folder: The folder.
        language: Language of the kernels.
        model: Folder or name of the embedder's model, where it is not where it was at the build.
        engine: Engine that searches; a name of `kernelgym.retrieval.nearest_rows.ENGINES`.

    Raises:
        UsageError: If the folder is not an index, lacks the language, or a file in it is missing,
            damaged or another's; or the embedder cannot be had or is another one.
    """
    from pyarrow import ArrowException, parquet

    place = Path(folder)
    manifest = read_manifest(place)
    digest = folder_digest(place, language)
    try:
        rows = parquet.read_table(place / language / _ENTRIES).to_pylist()
        entries = tuple(
            IndexEntry(**{name: row[name] for name in TEXTS}, speed=tuple(row["speed"]))
            for row in rows
        )
        keys = tuple({r: tuple(row[f"key_{r}"]) for r in REASONS} for row in rows)
        vectors = np.load(place / language / _VECTORS, mmap_mode="r", allow_pickle=False)
    except (ArrowException, OSError, EOFError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"a file of index {str(place)!r} in {language!r} is missing or damaged "
            f"({type(error).__name__}: {error}); build the index again"
        ) from None
    said = manifest["embedder"]
    embedder = find_embedder(
        model or said["model"], "" if model else said.get("revision", ""), name=said["name"]
    )
    if vectors.shape != (len(entries), embedder.dimension) or not np.isfinite(vectors).all():
        raise UsageError(
            f"index {str(place)!r} has vectors of shape {vectors.shape} for {len(entries)} entries "
            f"in {language!r}, or some that are not finite; embedder {embedder.name!r} makes "
            f"{embedder.dimension} finite numbers per entry; give the model that the index was "
            "made with, or build it again"
        )
    passed = {key: tuple(ids) for key, ids in manifest["passed"].get(language, {}).items()}
    made_of = (entries, vectors, embedder)
    index = Index(*made_of, keys=keys, passed=passed, engine=search_engine(engine, vectors))
    if index.digest != digest:
        raise UsageError(
            f"index {str(place)!r} says it has digest {digest} in {language!r}, and has "
            f"{index.digest}: its entries, or the tables that name operators, are others than at "
            "its build; build it again"
        )
    _check_vectors(index, np.linspace(0, len(entries) - 1, _SAMPLED).astype(int), place)
    return index


def check_index(folder: str | Path, *, model: str = "") -> Iterator[str]:
    """Check an index; yield a line about each language whose files, entries and vectors are sound.

    Args:
        folder: The folder.
        model: Folder or name of the embedder's model, where it is not where it was at the build.

    Raises:
        UsageError: At the first damaged file, unusable entry or vector that differs.
    """
    place = Path(folder)
    for language in read_manifest(place)["languages"]:
        index = read_index(place, language, model=model)
        for entry in index.entries:
            if reason := unusable(entry):
                raise UsageError(f"entry {entry.id!r} of {str(place)!r} is unusable: {reason}")
        count = len(index.entries)
        _check_vectors(index, np.arange(count), place)
        yield f"{language}: {count} entries, digest {index.digest}, all can be shown and found"


def _check_vectors(index: Index, places: np.ndarray[Any, Any], folder: Path) -> None:
    """Check that the embedder still gives the stored vectors of some entries."""
    again = embedded([index.entries[place].reference for place in places], index.embedder)
    alike = (again.astype(np.float64) * index.vectors[places].astype(np.float64)).sum(axis=1)
    if (alike < _ALIKE).any():
        raise UsageError(
            f"embedder {index.embedder.name!r} gives other vectors now than when index "
            f"{str(folder)!r} was built; give the model that it was made with, or rebuild it"
        )
