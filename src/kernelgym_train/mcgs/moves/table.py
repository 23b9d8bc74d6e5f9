"""`MOVES`: every move that the rules know, by id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym_train.mcgs.moves.compiler_flags import COMPILER_FLAGS, FAST_MATH
from kernelgym_train.mcgs.moves.definition import Move
from kernelgym_train.mcgs.moves.hoist import HOIST
from kernelgym_train.mcgs.moves.loop_order import LOOP_ORDER
from kernelgym_train.mcgs.moves.parallelise import PARALLELISE
from kernelgym_train.mcgs.moves.register_block import REGISTER_BLOCK
from kernelgym_train.mcgs.moves.unroll import UNROLL
from kernelgym_train.mcgs.moves.vectorize import VECTORIZE

__all__ = ["MOVES"]

MOVES: Mapping[str, Move] = MappingProxyType(
    {
        move.id: move
        for move in (
            HOIST,
            PARALLELISE,
            LOOP_ORDER,
            REGISTER_BLOCK,
            VECTORIZE,
            UNROLL,
            COMPILER_FLAGS,
            FAST_MATH,
        )
    }
)
"""In the order in which they are made."""
