"""Priors of moves, weighted by how much each move relieves a kernel's bottlenecks.

The shares are measured by hardware counters, or estimated from the kernel's text and the share of
the device's bandwidth that it achieves. A move counts for more the larger the shares are of what it
relieves. Contract: no prior becomes zero, and a fifth of the whole stays uniform. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.products import product_of
from kernelgym_train.mcgs.cuda.text import CudaText
from kernelgym_train.mcgs.triton.module import TritonModule, calls_in

_RELIEVES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "enable_async_pipeline": {"overlap": 1.0, "gmem": 0.5},
        "vectorize_global_loads": {"gmem": 0.8},
        "switch_to_mma_or_wgmma": {"compute": 1.8},
        "lower_precision": {"compute": 1.5},
        "tensor_core_tile": {"compute": 1.0, "gmem": 0.5, "overlap": 0.5},
        "single_pass_row": {"gmem": 1.5, "overlap": 0.5},
        "split_row": {"overlap": 1.5},
        "pad_tail_and_mask": {"gmem": 0.3, "smem": 0.3, "compute": 0.3},
        "change_block_sizes": {
            "overlap": 0.7,
            **dict.fromkeys(("compute", "gmem", "sfu", "atomics", "smem"), 0.3),
        },
        "cache_policy_cg": {"gmem": 0.3},
        "avoid_atomics_reduce": {"atomics": 1.0},
        "grouped_gemm_colmajor": {"gmem": 0.5, "compute": 0.2},
        "softmax_math_fusion": {"sfu": 1.0, "gmem": 0.5},
        "register_block": {"gmem": 1.5, "overlap": 0.5, "compute": 0.5},
        "share_rows": {"gmem": 1.5, "overlap": 1.0},
        "swap_thread_axes": {"gmem": 1.5},
        "unroll": {"overlap": 0.8},
        "compiler_flags": {"overlap": 0.4},
    }
)
"""Weight with which a move relieves each bottleneck, by move."""
_SPECIAL = re.compile(r"\b(?:__)?(?:exp|log|erf|tanh|sin|cos|pow|rsqrt)\w*\s*\(")
_EXPONENTIALS = re.compile(r"\b(?:__)?exp\w*\s*\(")
_REDUCES = re.compile(r"__shfl|atomic\w+\s*\(|for\s*\([^{]*\)\s*\{?[^;{}]*\+=")
_MULTIPLIES = re.compile(r"\+=[^;\n]*\]\s*\*[^;\n]*\]|\bmma_sync\b|\bwgmma\b|\bmma\.sync\b")
_LEAST = 0.25
_OTHER = {"overlap": 0.5}  # of moves of other packages
_UNIFORM = 0.2


def relief(move: str, shares: Mapping[str, float]) -> float:
    """Return a positive factor, which grows with the share of the bottlenecks that a move relieves.

    Args:
        move: Id of the move.
        shares: Shares by bottleneck, from 0 to 1.
    """
    weights = _RELIEVES.get(move, _OTHER)
    return _LEAST + sum(weight * shares.get(name, 0.0) for name, weight in weights.items())


def strongest(shares: Mapping[str, float]) -> str:
    """Return the bottleneck with the largest share; empty if no share is known or above 0."""
    name = max(shares, key=lambda each: shares[each], default="")
    return name if name and shares[name] > 0 else ""


def weighed_by_bottlenecks(
    priors: tuple[tuple[str, float], ...], shares: Mapping[str, float]
) -> tuple[tuple[str, float], ...]:
    """Return priors weighted by their moves' relief (four fifths) and uniform ones (one fifth).

    Args:
        priors: (move, prior), which add up to 1.
        shares: Shares by bottleneck, from 0 to 1.
    """
    found = [(move, prior * relief(move, shares)) for move, prior in priors]
    total = sum(weight for _, weight in found)
    if not total:
        return priors
    even = _UNIFORM / len(found)
    return tuple((move, (1 - _UNIFORM) * weight / total + even) for move, weight in found)


def estimated(module: TritonModule, floor_share: float) -> dict[str, float]:
    """Return a Triton kernel's bottleneck shares, estimated from its text without counters.

    Args:
        module: The kernel.
        floor_share: Share of the device's bandwidth that the kernel achieves; 0 if unknown.
    """
    nodes = [function.node for function in module.functions.values()]

    def has(*names: str) -> bool:
        return any(calls_in(node, *names) for node in nodes)

    product = has("dot")
    found = _estimated(product, has("exp", "exp2", "erf", "log"), has("atomic_add"), floor_share)
    return found | {"smem": 0.2 if product else 0.0}


def estimated_of_cuda(text: CudaText, floor_share: float) -> dict[str, float]:
    """Return a CUDA text's bottleneck shares, estimated from the text without counters.

    Args:
        text: The kernels.
        floor_share: Share of the device's bandwidth that the kernel achieves; 0 if unknown.
    """
    bodies = _bodies(text)
    found = _estimated(
        _is_product(text), bool(_SPECIAL.search(bodies)), "atomic" in bodies, floor_share
    )
    return found | {"smem": 0.3 if "__shared__" in bodies else 0.0}


def _estimated(product: bool, special: bool, atomics: bool, floor_share: float) -> dict[str, float]:
    memory = floor_share or 0.5
    return {
        "compute": 0.6 if product else 0.1,
        "gmem": memory,
        "sfu": 0.3 if special else 0.0,
        "atomics": 0.5 if atomics else 0.0,
        "overlap": 0.5 * (1.0 - memory),
    }


def family_of_cuda(text: CudaText) -> str:
    """Return a CUDA text's family, such as ``product``, told from its kernels."""
    bodies = _bodies(text)
    if _is_product(text):
        return "product"
    if _EXPONENTIALS.search(bodies):
        return "exponentials"
    return "reduction" if _REDUCES.search(bodies) else "elementwise"


def _bodies(text: CudaText) -> str:
    return "\n".join(text_of(kernel.body) for kernel in text.kernels.values())


def _is_product(text: CudaText) -> bool:
    own = any(product_of(text, kernel) is not None for kernel in text.kernels.values())
    return own or bool(_MULTIPLIES.search(_bodies(text)))


def family_of_module(module: TritonModule) -> str:
    """Return a Triton kernel's family, such as ``product``, told from what it calls."""
    for family, names in (
        ("product", ("dot",)),
        ("exponentials", ("exp", "exp2")),
        ("reduction", ("sum", "max", "min", "reduce", "atomic_add")),
    ):
        if any(calls_in(function.node, *names) for function in module.functions.values()):
            return family
    return "elementwise"
