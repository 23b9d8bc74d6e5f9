"""Moves by language: `OWN_MOVES` of this package; `known_moves` adds those of other packages.

Each file of ``moves/cpp``, ``moves/triton`` and ``moves/cuda`` holds a move, and is found there.
A package adds a move by the entry-point group ``kernelgym.moves``: its name is the move's id, and
it loads to a `kernelgym_train.mcgs.moves.definition.SearchMove`.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType

from kernelgym import UsageError
from kernelgym_train.mcgs.moves.definition import SearchMove

GROUP = "kernelgym.moves"
"""Name of the entry-point group of other packages' moves."""


def _moves_in(folder: str) -> Mapping[str, SearchMove]:
    """Return the moves in a folder by id: those tried first lead, then by phase."""
    package = import_module(f"{__package__}.{folder}")
    names = [each.name for each in pkgutil.iter_modules(package.__path__)]
    values = [vars(import_module(f"{package.__name__}.{name}")).values() for name in names]
    found = [each for some in values for each in some if isinstance(each, SearchMove)]
    found.sort(key=lambda move: (not move.tried_first, move.phase))
    return MappingProxyType({move.id: move for move in found})


OWN_MOVES: Mapping[str, Mapping[str, SearchMove]] = MappingProxyType(
    {language: _moves_in(language) for language in ("cpp", "triton", "cuda")}
)
"""This package's moves by the language of the kernels that they change, and by id.

A move of the same name does the corresponding thing in each language."""


@functools.cache
def known_moves(language: str) -> Mapping[str, SearchMove]:
    """Return all moves on kernels of a language by id, those of other packages last.

    Raises:
        UsageError: If another package's entry point cannot be loaded, is no move, or has the id of
            another move.
    """
    found = dict(OWN_MOVES.get(language, {}))
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            move = entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the move {entry.name!r} ({entry.value}) cannot be loaded: {error}; repair or "
                "uninstall the package that adds it"
            ) from None
        if not isinstance(move, SearchMove) or move.id != entry.name:
            raise UsageError(
                f"the entry point {entry.name!r} of {GROUP!r} ({entry.value}) must be a "
                f"SearchMove with the id {entry.name!r}, and is {move!r:.80}"
            )
        if language not in move.languages:
            continue
        if move.id in found:
            raise UsageError(f"the move {move.id!r} exists already; give {entry.value} another id")
        found[move.id] = move
    return MappingProxyType(found)
