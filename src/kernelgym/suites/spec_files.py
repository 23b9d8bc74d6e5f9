"""Kernel specs read from their files, with the files that they name.

Contract: `read_spec` returns a spec whose parts fit together, or raises a `UsageError` in one line
that says what is missing. The files that a spec names lie in its folder, links followed, and have a
largest size; anything else is a `UsageError`. A file's type is looked at before the file is opened,
so that a pipe blocks nothing.

Not covered: a folder that another process changes while the spec is read.
"""

from __future__ import annotations

import dataclasses
import json
import re
import stat
from pathlib import Path
from typing import Any

from kernelgym.errors import UnknownName, UsageError
from kernelgym.paths import cache_folder
from kernelgym.reading import read
from kernelgym.suites.spec import KernelSpec, Safetensors, SpecReference
from kernelgym.suites.spec_checks import check_spec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

MOST_TEXT_BYTES = 16 << 20
"""Largest number of bytes of a file with a source or a part of a spec."""
MOST_TENSOR_BYTES = 4 << 30
"""Largest number of bytes of a safetensors file, and of a spec with inline data."""


def read_spec(path: str | Path) -> KernelSpec:
    """Read a spec's file; sources that it names are read, too.

    Raises:
        UsageError: If it cannot be read, or its parts do not fit together.
    """
    from kernelgym.suites.spec_imports import converted

    path = Path(path)
    try:
        check_file(path, MOST_TENSOR_BYTES)
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UsageError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the kernel spec {path}: {why}") from None
    try:
        return spec_from(converted(data, path), path.parent)
    except UsageError as error:
        told = " ".join(f"{path}: {error}".splitlines())
        if not isinstance(error, UnknownName):
            raise UsageError(told) from None
        error.args = (told,)
        raise


def spec_from(data: object, folder: Path) -> KernelSpec:
    """Return a checked spec from JSON.

    Args:
        data: JSON of the spec, as `json.loads` returns it.
        folder: Folder to which the spec's paths are relative.

    Raises:
        UsageError: See `read_spec`.
    """
    spec = read(KernelSpec, data)
    spec = dataclasses.replace(spec, source=_text(spec.source, spec.path, folder, "source"))
    if (given := spec.given_reference) is not None:
        if given.problem:
            given = SpecReference(problem=_problem(given.problem, folder))
        else:
            run = _text(given.run, given.path, folder, "reference.run")
            given = SpecReference(run=run, path=given.path)
        spec = dataclasses.replace(spec, reference=given)
    spec = _placed(spec, folder)
    if not _NAME.fullmatch(spec.name):
        raise UsageError(
            f"name {spec.name!r:.80} is not a folder's name; letters, digits, _, - and . are"
        )
    check_spec(spec)
    return spec


def _problem(given: str, folder: Path) -> str:
    """Return a reference's problem: an id, or a file's whole path."""
    from kernelgym.suites import SUITES

    if given.endswith(".py"):
        return str(file_in(folder, given, MOST_TEXT_BYTES))
    if given.partition("/")[0] not in SUITES:
        raise UsageError(
            f"reference.problem is {given!r:.200}; give the id of a problem of "
            f"{' or '.join(SUITES)}, or a file (*.py) in the spec's folder"
        )
    return given


def _text(text: str, path: str, folder: Path, name: str) -> str:
    """Return a text that the spec holds itself, or that a file named in it holds."""
    if bool(text) == bool(path):
        what = f"{name} and its path are both given" if text else f"{name}, or its path, is missing"
        raise UsageError(f"{what}; give one of them")
    if text:
        return text
    return text_in(folder, path)


def _placed(spec: KernelSpec, folder: Path) -> KernelSpec:
    """Return a spec with whole paths for its safetensors files."""

    def placed(init: Any) -> Any:
        if not isinstance(init, Safetensors):
            return init
        return dataclasses.replace(init, path=str(file_in(folder, init.path, MOST_TENSOR_BYTES)))

    contract = spec.contract
    tensors = tuple(dataclasses.replace(t, init=placed(t.init)) for t in contract.tensors)
    shapes = tuple(
        dataclasses.replace(s, inits={name: placed(init) for name, init in s.inits.items()})
        for s in contract.shapes
    )
    return dataclasses.replace(
        spec, contract=dataclasses.replace(contract, tensors=tensors, shapes=shapes)
    )


def file_in(folder: Path, given: str, most_bytes: int) -> Path:
    """Return the whole path of a file that a spec names.

    Args:
        folder: The spec's folder.
        given: The file, relative to it.
        most_bytes: Largest number of bytes of the file.

    Raises:
        UsageError: If it is not a file, does not lie in the folder, or is larger.
    """
    try:
        root = folder.resolve()
        path = (root / given).resolve()
        # Inline data was written there by this package.
        places = (root, (cache_folder() / "spec_tensors").resolve())
        if not any(path.is_relative_to(place) for place in places):
            raise UsageError(
                f"{given!r} does not lie in the spec's folder; copy the file there, and name it "
                "relative to the spec"
            )
        check_file(path, most_bytes)
    except UsageError as error:
        raise UsageError(f"cannot read {given!r:.200}: {error}") from None
    except (OSError, ValueError, RuntimeError) as error:  # a NUL; links that lead in a circle
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {given!r:.200}: {why}") from None
    return path


def text_in(folder: Path, given: str) -> str:
    """Return the text of a file that a spec names.

    Raises:
        UsageError: As `file_in`, or if it is not UTF-8 text.
    """
    path = file_in(folder, given, MOST_TEXT_BYTES)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {given!r:.200}: {error}") from None


def check_file(path: Path, most_bytes: int) -> None:
    """Check that a path names a file of some size at most.

    Raises:
        OSError: If there is none.
        UsageError: If it is not a regular file, or larger.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise UsageError("the file is not a regular file")
    if state.st_size > most_bytes:
        raise UsageError(f"the file has {state.st_size} bytes, more than the limit of {most_bytes}")
