"""`recipe_of`: description of a step of a search in a sentence. Pure."""

from __future__ import annotations

from kernelgym_train.mcgs.moves.table import known_moves
from kernelgym_train.mcgs.writing.asks import PREFIX, is_written


def recipe_of(move: str, language: str) -> str:
    """Return the description of a move by its id; empty if the move is not known.

    Args:
        move: Id of a move of the rules, or of a writer.
        language: Language of the kernels.
    """
    known = known_moves(language)
    if not is_written(move):
        return known[move].recipe if move in known else ""
    asked = known.get(move.removeprefix(PREFIX))
    told = f" It was asked for this: {asked.recipe}" if asked is not None else ""
    return f"A model or a command wrote this change; nothing is proven of it.{told}"
