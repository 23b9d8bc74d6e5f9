"""`MOVES`: every move that the rules know, by id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym_train.mcgs.moves.avoid_atomics_reduce import AVOID_ATOMICS_REDUCE
from kernelgym_train.mcgs.moves.cache_policy_cg import CACHE_POLICY_CG
from kernelgym_train.mcgs.moves.change_block_sizes import CHANGE_BLOCK_SIZES
from kernelgym_train.mcgs.moves.compiler_flags import COMPILER_FLAGS, FAST_MATH
from kernelgym_train.mcgs.moves.definition import Move
from kernelgym_train.mcgs.moves.enable_async_pipeline import ENABLE_ASYNC_PIPELINE
from kernelgym_train.mcgs.moves.grouped_gemm_colmajor import GROUPED_GEMM_COLMAJOR
from kernelgym_train.mcgs.moves.hoist import HOIST
from kernelgym_train.mcgs.moves.loop_order import LOOP_ORDER
from kernelgym_train.mcgs.moves.pad_tail_and_mask import PAD_TAIL_AND_MASK
from kernelgym_train.mcgs.moves.parallelise import PARALLELISE
from kernelgym_train.mcgs.moves.register_block import REGISTER_BLOCK
from kernelgym_train.mcgs.moves.softmax_math_fusion import SOFTMAX_MATH_FUSION
from kernelgym_train.mcgs.moves.switch_to_mma_or_wgmma import SWITCH_TO_MMA_OR_WGMMA
from kernelgym_train.mcgs.moves.unroll import UNROLL
from kernelgym_train.mcgs.moves.vectorize_global_loads import VECTORIZE

__all__ = ["MOVES"]

MOVES: Mapping[str, Move] = MappingProxyType(
    {
        move.id: move
        for move in (
            AVOID_ATOMICS_REDUCE,
            HOIST,
            GROUPED_GEMM_COLMAJOR,
            PARALLELISE,
            LOOP_ORDER,
            REGISTER_BLOCK,
            SWITCH_TO_MMA_OR_WGMMA,
            CHANGE_BLOCK_SIZES,
            PAD_TAIL_AND_MASK,
            VECTORIZE,
            SOFTMAX_MATH_FUSION,
            UNROLL,
            ENABLE_ASYNC_PIPELINE,
            CACHE_POLICY_CG,
            COMPILER_FLAGS,
            FAST_MATH,
        )
    }
)
"""In the order in which they are made."""
