"""`static_weights`: what a C++ kernel's text says of each move's chances.

A move's own weight is multiplied by a factor between `LEAST` and `MOST`, so that none is ever ruled
out. Factors follow from `kernelgym_train.mcgs.cpp.cost`: how loops walk through memory, sums,
divisions, exponentials, atomics, and bytes beside operations. Pure.

Does not know how often a loop runs, and reads no report of a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgym_train.mcgs.cpp.cost import Cost, cost_of
from kernelgym_train.mcgs.variant import Variant, builds_extension

__all__ = ["LEAST", "MOST", "factors", "static_weights"]

LEAST, MOST = 0.25, 4.0
_DEAR = 8.0  # operations that a division or an exponential counts as
_INTENSE = 0.5  # operations a byte, above which arithmetic counts as the limit


def static_weights(variant: Variant, weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights of moves, multiplied by what the kernel's text says.

    Args:
        variant: The kernel; one without C++ leaves weights as they are.
        weights: By id of the move.
    """
    if not builds_extension(variant.language):
        return dict(weights)
    found = factors(cost_of(variant.file.cpp))
    return {name: weight * found.get(name, 1.0) for name, weight in weights.items()}


def factors(cost: Cost) -> dict[str, float]:
    """Return factors by move; other moves keep their weights."""
    work = cost.operations + _DEAR * (cost.divisions + cost.exponentials)
    intense = work > _INTENSE * max(cost.bytes_moved, 1)
    nest, dear = cost.depth >= 3, cost.divisions + cost.exponentials
    found = {
        "avoid_atomics_reduce": 4.0 if cost.atomics else 1.0,
        "hoist": 2.0 if dear else 1.0,
        "parallelise": 0.5 if cost.parallel else 1.5,
        # Where every element is near, another order has little to gain.
        "loop_order": 1.5 if cost.far else 0.4,
        "grouped_gemm_colmajor": 1.5 if cost.far else 0.7,
        "register_block": 1.5 if nest else 1.0,
        "switch_to_mma_or_wgmma": 2.0 if nest else 1.0,
        "change_block_sizes": 1.0 if cost.far and not cost.parallel else 0.5,
        "vectorize_global_loads": 0.5 if cost.far else 1.5,
        "softmax_math_fusion": 2.0 if dear else 0.5,
        "enable_async_pipeline": 1.0 if cost.far else 0.3,
        "cache_policy_cg": 0.3 if nest or intense else 1.5,
        "fast_math": 2.0 if cost.sums or dear else 0.5,
    }
    return {name: min(MOST, max(LEAST, factor)) for name, factor in found.items()}
