"""An index as a folder: manifest, entries and vectors.

Contract: ``manifest.json`` names the format, the embedder, the view and the SHA-256 of every other
file; a folder ``LANGUAGE/`` holds ``entries.parquet`` and ``vectors.npy``, one row per entry, by
id; ``held_out.json`` says for which problems entries were tested; ``references.parquet`` (if any)
holds references without a kernel that can run. Nothing is pickled, and reading runs nothing.
`read_index` checks what it reads against the manifest and maps the vectors into memory. A folder
is written beside its place and takes it in one step.

It does not cover files that are cut short while a process has them mapped; replace a folder whole,
as `write_index` does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.retrieval.embedding import VIEWS, view_text
from kernelgym.retrieval.entry import Entry, unusable
from kernelgym.retrieval.exclusion import REASONS, Keys
from kernelgym.retrieval.index import Index, embedded
from kernelgym.retrieval.models import embedder_record, recorded_embedder
from kernelgym.retrieval.search import engine_of

__all__ = [
    "FORMAT",
    "MANIFEST",
    "check_index",
    "read_index",
    "read_manifest",
    "split_by_language",
    "write_index",
]

FORMAT = 1
"""Version of the folder's format; goes up when an older reader would go wrong."""
MANIFEST = "manifest.json"
_ENTRIES, _VECTORS = "entries.parquet", "vectors.npy"
HELD_OUT, REFERENCES = "held_out.json", "references.parquet"
_CHUNK = 1 << 22
_AGAIN = 3
"""Entries that are embedded again to see that the embedder still does the same."""
_ALIKE = 0.999
_TEXTS = (
    *("kind", "reference", "kernel", "language", "before", "problem_id", "name", "form"),
    *("origin", "licence", "verdict", "provenance", "feedback", "category", "device", "ruleset"),
)
_SPEEDS = ("speed", "speed_before")


def write_index(
    folder: str | Path,
    parts: Mapping[str, Index],
    *,
    about: Mapping[str, Any] | None = None,
    held_out: Mapping[str, Any] | None = None,
    references: Sequence[Mapping[str, str]] = (),
) -> None:
    """Write indexes as one folder; replaces an index that was there.

    Args:
        folder: The folder.
        parts: Indexes by language, of one embedder and view.
        about: What else the manifest says.
        held_out: What ``held_out.json`` says beside the entries that passed.
        references: Rows of ``references.parquet``.

    Raises:
        UsageError: If there are no entries, the folder is there and is no index, or it cannot be
            written.
    """
    out = Path(folder)
    check_place(out)
    kept = {name: index for name, index in parts.items() if index.entries}
    if not kept:
        raise UsageError(f"there is no entry to write to {str(out)!r}; an index holds at least one")
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        _write(draft, kept, dict(about or {}), dict(held_out or {}), references)
        _take_place(draft, out)
    except OSError as error:
        raise UsageError(
            f"index {str(out)!r} cannot be written: {error.strerror or error}; what was there "
            "stays as it was"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_place(out: Path) -> None:
    """Make sure that an index may be written to a folder.

    Raises:
        UsageError: If something else is there.
    """
    if out.is_dir() and (not any(out.iterdir()) or (out / MANIFEST).is_file()):
        return
    if os.path.lexists(out):
        raise UsageError(
            f"{str(out)!r} is there and is no index; give another folder, or remove it"
        )


def _take_place(draft: Path, out: Path) -> None:
    if not out.exists():
        draft.rename(out)
        return
    before = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    out.rename(before)
    try:
        draft.rename(out)
    except OSError:
        before.rename(out)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _write(
    draft: Path,
    parts: Mapping[str, Index],
    about: dict[str, Any],
    held_out: dict[str, Any],
    references: Sequence[Mapping[str, str]],
) -> None:
    first = next(iter(parts.values()))
    for language, index in parts.items():
        (draft / language).mkdir()
        np.save(draft / language / _VECTORS, np.asarray(index.vectors), allow_pickle=False)
        _write_table(draft / language / _ENTRIES, _columns(index))
    passed = {name: dict(index.passed) for name, index in parts.items() if index.passed}
    if held_out or passed:
        text = json.dumps({**held_out, "passed": passed}, indent=1, sort_keys=True)
        (draft / HELD_OUT).write_text(text, encoding="ascii")
    if references:
        names = sorted({name for row in references for name in row})
        columns = {name: [row.get(name, "") for row in references] for name in names}
        _write_table(draft / REFERENCES, columns)
    files = [path for path in sorted(draft.rglob("*")) if path.is_file()]
    manifest = {
        "format": FORMAT,
        "embedder": embedder_record(first.embedder),
        "view": first.view,
        "languages": {
            name: {
                "entries": len(index.entries),
                "digest": index.digest,
                "left_out": dict(index.left_out),
            }
            for name, index in parts.items()
        },
        **about,
        "files": {path.relative_to(draft).as_posix(): _sha256(path) for path in files},
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="ascii")


def _columns(index: Index) -> dict[str, list[Any]]:
    entries = index.entries
    columns: dict[str, list[Any]] = {
        name: [getattr(entry, name) for entry in entries] for name in _TEXTS
    }
    columns |= {name: [list(getattr(entry, name)) for entry in entries] for name in _SPEEDS}
    for reason in REASONS:
        columns[f"key_{reason}"] = [list(keys[reason]) for keys in index.keys]
    return columns


def _write_table(path: Path, columns: Mapping[str, list[Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    of_floats, of_texts = pyarrow.list_(pyarrow.float64()), pyarrow.list_(pyarrow.string())
    kinds = {
        name: of_floats
        if name in _SPEEDS
        else of_texts
        if name.startswith("key_")
        else pyarrow.large_string()
        for name in columns
    }
    table = pyarrow.table({name: pyarrow.array(columns[name], kinds[name]) for name in columns})
    parquet.write_table(table, path, compression="zstd")


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return an index's manifest.

    Raises:
        UsageError: If the folder is no index, or one of another format.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{str(folder)!r} is no index: its {MANIFEST} cannot be read ({error.strerror}); "
            "`kernelgym index build` makes one"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}); build the index anew") from None
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != FORMAT:
        raise UsageError(
            f"{str(folder)!r} is an index of format {version!r}, and this version of kernelgym "
            f"reads format {FORMAT}; build it anew"
        )
    found: dict[str, Any] = manifest
    shape = {"embedder": dict, "view": str, "languages": dict, "files": dict}
    for name, kind in shape.items():
        if not isinstance(found.get(name), kind):
            raise UsageError(f"{path} has no sound {name!r}; build the index anew")
    return found


def read_index(
    folder: str | Path, language: str, *, model: str = "", engine: str = "numpy"
) -> Index:
    """Return the part of an index that holds kernels in a language.

    Args:
        folder: The folder.
        language: Language of the kernels.
        model: Folder or name of the embedder's model, where it is not where it was at the build.
        engine: What searches; see `kernelgym.retrieval.search.ENGINES`.

    Raises:
        UsageError: If the folder is no index, holds no such language, or a file in it is missing,
            damaged or another's; or the embedder cannot be had or is another one.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    known = [name for name in manifest["languages"] if name in LANGUAGES]
    if language not in known:
        raise UnknownName("language of the index", language, known, f"It is {str(place)!r}.")
    view = manifest["view"]
    if view not in VIEWS:
        raise UnknownName("view of a reference", view, VIEWS, f"{place / MANIFEST} names it.")
    entries, keys = _entries(_checked(place, manifest, f"{language}/{_ENTRIES}"), place, language)
    vectors = _vectors(place, manifest, language)
    embedder = recorded_embedder(manifest["embedder"], model)
    if vectors.shape != (len(entries), embedder.dimension) or not np.isfinite(vectors).all():
        raise UsageError(
            f"index {str(place)!r} has vectors of shape {vectors.shape} for {len(entries)} entries "
            f"in {language!r}, or some that are not finite; embedder {embedder.name!r} makes "
            f"{embedder.dimension} finite numbers per entry; build it anew"
        )
    passed = _passed(place, manifest, language)
    index = Index(
        *(entries, vectors, embedder, MappingProxyType({}), view, keys, passed),
        engine_of(engine, vectors),
    )
    said = manifest["languages"][language].get("digest")
    if index.digest != said:
        raise UsageError(
            f"index {str(place)!r} says it has digest {said} in {language!r}, and has "
            f"{index.digest}: its entries, or the tables that name operators, are others than at "
            "its build; build it anew"
        )
    _check_embedder(index, place)
    return index


def check_index(folder: str | Path, *, model: str = "") -> Iterator[str]:
    """Yield what was found sound in an index, part by part.

    Raises:
        UsageError: At the first thing that is not.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    for name in manifest["files"]:
        if not _is_ours(name):
            raise UsageError(f"{place / MANIFEST} names {name!r}, which is no file of an index")
        _checked(place, manifest, name)
    yield f"{len(manifest['files'])} files have the digests that {MANIFEST} names"
    for language in manifest["languages"]:
        index = read_index(place, language, model=model)
        for entry in index.entries:
            if reason := unusable(entry):
                raise UsageError(f"entry {entry.id!r} of {str(place)!r} is unusable: {reason}")
        shown = len(index.entries)
        yield f"{language}: {shown} entries, digest {index.digest}, all can be shown and found"


def split_by_language(index: Index) -> dict[str, Index]:
    """Return an index's parts by language."""
    parts: dict[str, Index] = {}
    for language in sorted({entry.language for entry in index.entries}):
        own = [i for i, entry in enumerate(index.entries) if entry.language == language]
        parts[language] = dataclasses.replace(
            index,
            entries=tuple(index.entries[i] for i in own),
            vectors=np.ascontiguousarray(index.vectors[own]),
            keys=tuple(index.keys[i] for i in own),
            engine=None,
        )
    return parts


def _is_ours(name: str) -> bool:
    if name in (HELD_OUT, REFERENCES):
        return True
    language, _, file = name.partition("/")
    return language in LANGUAGES and file in (_ENTRIES, _VECTORS)


def _checked(place: Path, manifest: Mapping[str, Any], name: str) -> bytes:
    """Return the bytes of a file of an index.

    Raises:
        UsageError: If it cannot be read, or has another digest.
    """
    try:
        data = (place / name).read_bytes()
    except OSError as error:
        raise UsageError(
            f"index {str(place)!r} lacks {name} ({error.strerror}); build it anew"
        ) from None
    if hashlib.sha256(data).hexdigest() != manifest["files"].get(name):
        raise UsageError(
            f"{place / name} is not the file that {MANIFEST} names: it was changed, cut short or "
            "swapped; build the index anew"
        )
    return data


def _entries(data: bytes, place: Path, language: str) -> tuple[tuple[Entry, ...], tuple[Keys, ...]]:
    from pyarrow import ArrowException, parquet

    try:
        rows = parquet.read_table(io.BytesIO(data)).to_pylist()
        entries = tuple(map(_entry, rows))
        keys = tuple({r: tuple(row[f"key_{r}"]) for r in REASONS} for row in rows)
    except (ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{place / language / _ENTRIES} is no table of entries ({type(error).__name__}: "
            f"{error}); build the index anew"
        ) from None
    ids = [entry.id for entry in entries]
    if ids != sorted(set(ids)) or any(entry.language != language for entry in entries):
        raise UsageError(
            f"{place / language / _ENTRIES} holds entries twice, out of order or of another "
            "language; build the index anew"
        )
    return entries, keys


def _entry(row: Mapping[str, Any]) -> Entry:
    given: dict[str, Any] = {name: row[name] for name in _TEXTS}
    given |= {name: tuple(row[name]) for name in _SPEEDS}
    return Entry(**given)


def _vectors(place: Path, manifest: Mapping[str, Any], language: str) -> Any:
    name = f"{language}/{_VECTORS}"
    _checked(place, manifest, name)
    try:
        vectors = np.load(place / name, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{place / name} is no array ({error}); build the index anew") from None
    if vectors.ndim != 2 or vectors.dtype != np.float32:
        raise UsageError(f"{place / name} is no matrix of float32; build the index anew")
    return vectors


def _passed(
    place: Path, manifest: Mapping[str, Any], language: str
) -> Mapping[str, tuple[str, ...]]:
    if HELD_OUT not in manifest["files"]:
        return {}
    try:
        said = json.loads(_checked(place, manifest, HELD_OUT))["passed"].get(language, {})
        return MappingProxyType({str(key): tuple(map(str, ids)) for key, ids in said.items()})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(f"{place / HELD_OUT} is not sound ({error}); build it anew") from None


def _check_embedder(index: Index, place: Path) -> None:
    """Make sure that the embedder still gives the vectors of some entries."""
    count = len(index.entries)
    some = sorted({0, count // 2, count - 1})[:_AGAIN]
    texts = [view_text(index.entries[i].reference, index.view) for i in some]
    again = embedded(texts, index.embedder).astype(np.float64)
    alike = (again * index.vectors[some].astype(np.float64)).sum(axis=1)
    if (alike < _ALIKE).any():
        raise UsageError(
            f"embedder {index.embedder.name!r} gives other vectors now than when index "
            f"{str(place)!r} was built; build it anew with this version"
        )


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_CHUNK):
            total.update(block)
    return total.hexdigest()
