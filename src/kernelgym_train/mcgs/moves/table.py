"""Moves by language: `CPP_MOVES`, `TRITON_MOVES`, `CUDA_MOVES`; `known_moves` adds those of others.

A package adds a move by the entry-point group ``kernelgym.moves``: its name is the move's id, and
it loads to a `kernelgym_train.mcgs.moves.definition.SearchMove`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from kernelgym import UsageError
from kernelgym_train.mcgs.moves.cpp.avoid_atomics_reduce import AVOID_ATOMICS_REDUCE
from kernelgym_train.mcgs.moves.cpp.cache_policy_cg import CACHE_POLICY_CG
from kernelgym_train.mcgs.moves.cpp.change_block_sizes import CHANGE_BLOCK_SIZES
from kernelgym_train.mcgs.moves.cpp.compiler_flags import COMPILER_FLAGS, FAST_MATH
from kernelgym_train.mcgs.moves.cpp.enable_async_pipeline import ENABLE_ASYNC_PIPELINE
from kernelgym_train.mcgs.moves.cpp.grouped_gemm_colmajor import GROUPED_GEMM_COLMAJOR
from kernelgym_train.mcgs.moves.cpp.hoist import HOIST
from kernelgym_train.mcgs.moves.cpp.loop_order import LOOP_ORDER
from kernelgym_train.mcgs.moves.cpp.lower_precision import LOWER_PRECISION
from kernelgym_train.mcgs.moves.cpp.pad_tail_and_mask import PAD_TAIL_AND_MASK
from kernelgym_train.mcgs.moves.cpp.parallelise import PARALLELISE
from kernelgym_train.mcgs.moves.cpp.register_block import REGISTER_BLOCK
from kernelgym_train.mcgs.moves.cpp.softmax_math_fusion import SOFTMAX_MATH_FUSION
from kernelgym_train.mcgs.moves.cpp.switch_to_mma_or_wgmma import SWITCH_TO_MMA_OR_WGMMA
from kernelgym_train.mcgs.moves.cpp.unroll import UNROLL
from kernelgym_train.mcgs.moves.cpp.vectorize_global_loads import VECTORIZE
from kernelgym_train.mcgs.moves.cuda import avoid_atomics_reduce as cuda_atomics
from kernelgym_train.mcgs.moves.cuda import cache_policy_cg as cuda_caches
from kernelgym_train.mcgs.moves.cuda import change_block_sizes as cuda_blocks
from kernelgym_train.mcgs.moves.cuda import compiler_flags as cuda_flags
from kernelgym_train.mcgs.moves.cuda import register_block as cuda_tiles
from kernelgym_train.mcgs.moves.cuda import share_rows as cuda_rows
from kernelgym_train.mcgs.moves.cuda import softmax_math_fusion as cuda_softmax
from kernelgym_train.mcgs.moves.cuda import swap_thread_axes as cuda_axes
from kernelgym_train.mcgs.moves.cuda import unroll as cuda_unroll
from kernelgym_train.mcgs.moves.cuda import vectorize_global_loads as cuda_vectors
from kernelgym_train.mcgs.moves.definition import SearchMove
from kernelgym_train.mcgs.moves.triton import avoid_atomics_reduce as triton_atomics
from kernelgym_train.mcgs.moves.triton import cache_policy_cg as triton_caches
from kernelgym_train.mcgs.moves.triton import change_block_sizes as triton_blocks
from kernelgym_train.mcgs.moves.triton import enable_async_pipeline as triton_pipeline
from kernelgym_train.mcgs.moves.triton import grouped_gemm_colmajor as triton_groups
from kernelgym_train.mcgs.moves.triton import lower_precision as triton_precision
from kernelgym_train.mcgs.moves.triton import pad_tail_and_mask as triton_masks
from kernelgym_train.mcgs.moves.triton import single_pass_row as triton_rows
from kernelgym_train.mcgs.moves.triton import softmax_math_fusion as triton_softmax
from kernelgym_train.mcgs.moves.triton import switch_to_mma_or_wgmma as triton_mma
from kernelgym_train.mcgs.moves.triton import tensor_core_tile as triton_tile
from kernelgym_train.mcgs.moves.triton import vectorize_global_loads as triton_vectors

GROUP = "kernelgym.moves"
"""Name of the entry-point group of other packages' moves."""

CPP_MOVES: Mapping[str, SearchMove] = MappingProxyType(
    {
        move.id: move
        for move in (
            AVOID_ATOMICS_REDUCE,
            LOWER_PRECISION,
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
"""Moves on C++ kernels by id."""
TRITON_MOVES: Mapping[str, SearchMove] = MappingProxyType(
    {
        move.id: move
        for move in (
            triton_rows.SINGLE_PASS_ROW,
            triton_tile.TENSOR_CORE_TILE,
            triton_atomics.AVOID_ATOMICS_REDUCE,
            triton_softmax.SOFTMAX_MATH_FUSION,
            triton_mma.SWITCH_TO_MMA_OR_WGMMA,
            triton_precision.LOWER_PRECISION,
            triton_groups.GROUPED_GEMM_COLMAJOR,
            triton_blocks.CHANGE_BLOCK_SIZES,
            triton_pipeline.ENABLE_ASYNC_PIPELINE,
            triton_masks.PAD_TAIL_AND_MASK,
            triton_caches.CACHE_POLICY_CG,
            triton_vectors.VECTORIZE,
        )
    }
)
"""Moves on Triton kernels by id. A move of the same name does the corresponding thing in C++."""
CUDA_MOVES: Mapping[str, SearchMove] = MappingProxyType(
    {
        move.id: move
        for move in (
            cuda_tiles.REGISTER_BLOCK,
            cuda_rows.SHARE_ROWS,
            cuda_axes.SWAP_THREAD_AXES,
            cuda_atomics.AVOID_ATOMICS_REDUCE,
            cuda_vectors.VECTORIZE,
            cuda_blocks.CHANGE_BLOCK_SIZES,
            cuda_softmax.SOFTMAX_MATH_FUSION,
            cuda_unroll.UNROLL,
            cuda_caches.CACHE_POLICY_CG,
            cuda_flags.COMPILER_FLAGS,
            cuda_flags.FAST_MATH,
        )
    }
)
"""Moves on CUDA kernels by id."""
LANGUAGES_WITH_MOVES: tuple[str, ...] = tuple(
    dict.fromkeys(
        language
        for moves in (CPP_MOVES, TRITON_MOVES, CUDA_MOVES)
        for move in moves.values()
        for language in move.languages
    )
)
"""Languages of the kernels that moves of this package change."""


@functools.cache
def known_moves(language: str) -> Mapping[str, SearchMove]:
    """Return all moves on kernels of a language by id, those of other packages last.

    Raises:
        UsageError: If another package's entry point cannot be loaded, is no move, or has the id of
            another move.
    """
    own = (*CPP_MOVES.values(), *TRITON_MOVES.values(), *CUDA_MOVES.values())
    found = {move.id: move for move in own if language in move.languages}
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
            raise UsageError(
                f"the move {move.id!r} is there already; give {entry.value} another id"
            )
        found[move.id] = move
    return MappingProxyType(found)
