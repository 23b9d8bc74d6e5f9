"""Embedders by name: embedded, of installed packages, and models of text.

Contract: `find_embedder` takes the name of an embedder (``operators``), of an entry point in the
group ``kernelgym.embedders``, or of a model that sentence-transformers reads: a folder, or a name
on the Hugging Face hub with a revision. `embedder_record` says by plain data which one it was, and
`recorded_embedder` gives an equal one back or refuses. Nothing is loaded by a file that says so:
entry points are installed code, and models load without code of their own.

An entry point names a class or function that returns an `Embedder` when called without arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.retrieval.embedding import EMBEDDERS, Embedder

__all__ = ["GROUP", "embedder_names", "embedder_record", "find_embedder", "recorded_embedder"]

GROUP = "kernelgym.embedders"
"""Entry-point group for embedders of other packages."""


def embedder_names() -> tuple[str, ...]:
    """Return names of embedders that need no model."""
    return (*EMBEDDERS, *sorted({found.name for found in entry_points(group=GROUP)}))


def find_embedder(
    model: str = "operators",
    revision: str = "",
    *,
    device: str = "cpu",
    dtype: str = "float32",
    batch: int = 32,
) -> Embedder:
    """Return an embedder.

    Args:
        model: Name of an embedder, folder of a model, or name of a model on the hub.
        revision: Commit, tag or branch on the hub; the newest if empty.
        device: Where a model computes.
        dtype: What a model computes in: ``float32``, ``float16`` or ``bfloat16``.
        batch: Texts that a model takes at once.

    Raises:
        UsageError: If there is no such embedder or model, an installed one is none, the hub does
            not answer, or sentence-transformers is not installed.
    """
    if model in EMBEDDERS:
        return EMBEDDERS[model]
    for found in entry_points(group=GROUP):
        if found.name == model:
            return _installed(found)
    from kernelgym.retrieval.text_model import TextModel

    return TextModel(model, revision, device=device, dtype=dtype, batch=batch)


def embedder_record(embedder: Embedder) -> dict[str, Any]:
    """Return what an index's manifest says of an embedder, as JSON data."""
    said = {"name": embedder.name, "dimension": embedder.dimension}
    about = getattr(embedder, "record", None)
    return said | (dict(about) if isinstance(about, Mapping) else {})


def recorded_embedder(record: Mapping[str, Any], model: str = "") -> Embedder:
    """Return the embedder that a record names.

    Args:
        record: What `embedder_record` returned.
        model: Folder or name of its model, where that is another one than at the build.

    Raises:
        UsageError: If it cannot be had, or is another one than the record's.
    """
    name = str(record.get("name", ""))
    given = model or str(record.get("model", "")) or name
    if given == name and name not in embedder_names():
        raise UsageError(
            f"the index was made with embedder {name!r}, which no installed package gives; known: "
            f"{', '.join(embedder_names())}; install the package, or build the index anew"
        )
    found = find_embedder(given, str(record.get("revision", "")) if not model else "")
    said = embedder_record(found)
    for what in ("weights", "dimension"):
        if record.get(what) is not None and said.get(what) != record[what]:
            raise UsageError(
                f"the index was made with embedder {name!r} of {what} {record[what]}, and "
                f"{given!r} has {said.get(what)}; give the model it was made with, or build the "
                "index anew"
            )
    if "weights" not in record and found.name != name:
        raise UsageError(
            f"the index was made with embedder {name!r}, and {given!r} is {found.name!r}; leave "
            "the model out, or build the index anew"
        )
    return found


def _installed(found: Any) -> Embedder:
    """Return the embedder of an entry point.

    Raises:
        UsageError: If it cannot be loaded, or gives no embedder.
    """
    try:
        made = found.load()()
    except Exception as error:  # code of another package
        raise UsageError(
            f"embedder {found.name!r} ({found.value}) cannot be made: {type(error).__name__}: "
            f"{error}; repair or remove the package that names it"
        ) from None
    if not isinstance(made, Embedder):
        raise UsageError(
            f"embedder {found.name!r} ({found.value}) gives {made!r}, which has no name, dimension "
            "and embed(texts, query=False)"
        )
    return made


def is_folder(model: str) -> bool:
    """Return True if a model's name is a folder that is there."""
    try:
        return Path(model).is_dir()
    except (OSError, ValueError):
        return False
