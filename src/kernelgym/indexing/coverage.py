"""Which problems an index was tested on, and how to test others.

Contract: pure but for reading ``held_out.json`` of the index, which is checked against its
manifest. The embedded index is tested for no problem: it holds no canonical form of a held-out
Synthetic problem, and that is all.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.retrieval.folder import HELD_OUT, read_manifest
from kernelgym.retrieval.part import INDEXES, Retrieval
from kernelgym.types import Problem

__all__ = ["build_command", "held_out_of", "uncovered", "uncovered_message"]


def held_out_of(folder: str | Path) -> dict[str, Any]:
    """Return what an index says of held-out problems, if anything.

    Raises:
        UsageError: If the folder is no index, or the file is damaged.
    """
    manifest = read_manifest(folder)
    if HELD_OUT not in manifest["files"]:
        return {}
    path = Path(folder) / HELD_OUT
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); build it anew") from None
    if hashlib.sha256(data).hexdigest() != manifest["files"][HELD_OUT]:
        raise UsageError(f"{path} is not the file that the manifest names; build the index anew")
    found: dict[str, Any] = json.loads(data)
    return found


def uncovered(
    retrieval: Retrieval, language: str, problems: Iterable[Problem]
) -> tuple[Problem, ...]:
    """Return the problems on which no entry of an index was tested.

    Args:
        retrieval: Names the index.
        language: Language of the kernels.
        problems: Those that are evaluated on.

    Raises:
        UsageError: If the folder is no index.
    """
    tested: dict[str, Any] = {}
    if retrieval.index not in INDEXES:
        tested = held_out_of(retrieval.index).get("passed", {}).get(language, {})
    return tuple(problem for problem in problems if problem.digest not in tested)


def uncovered_message(retrieval: Retrieval, problems: Sequence[Problem], split: str = "") -> str:
    """Return a sentence: what was not tested, and what tests it."""
    suites = {problem.suite for problem in problems}
    named = "the embedded index" if retrieval.index in INDEXES else f"index {retrieval.index!r}"
    parts = sorted(f"{suite}:{split}" if split else suite for suite in suites)
    return (
        f"no entry of {named} was tested on {len(problems)} of the problems to evaluate on, such "
        f"as {problems[0].id}: an entry that solves one may be shown; make an index with "
        f"`{build_command(retrieval, parts)}`"
    )


def build_command(retrieval: Retrieval, parts: Sequence[str]) -> str:
    """Return the command that builds an index tested on parts of suites."""
    corpora, out = ["synthetic"], "indexes/tested"
    if retrieval.index not in INDEXES:
        out = retrieval.index
        manifest = read_manifest(retrieval.index)
        corpora = [str(each.get("corpus", "")) for each in manifest.get("corpora", [])] or corpora
    words = ["kernelgym", "index", "build"]
    words += [word for corpus in corpora for word in ("--corpus", corpus)]
    words += [word for part in parts for word in ("--hold-out", part)]
    return shlex.join([*words, "--out", out])
