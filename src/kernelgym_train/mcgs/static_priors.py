"""`static_weights`: weights of moves, from a kernel's text and the compiler's report.

A move's own weight is multiplied by a factor between `LEAST` and `MOST`, so that no move is ever
ruled out. Factors depend on `kernelgym_train.mcgs.cpp.cost`: strides of loops through memory, sums,
divisions, exponentials, atomics, and the ratio of operations to bytes. Where `read_report` was
given a log of g++ with `REPORT_FLAG`, they also depend on which innermost loops were vectorised.
Pure.

How often a loop runs is not known. A report holds for one text and its flags: it says nothing of a
loop that has changed, or of other flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelgym_train.mcgs.cpp.cost import LoopCost, cost_of
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.cpp.loops import innermost_loops
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.source_forms import holds_cpp
from kernelgym_train.mcgs.variant import Variant

LEAST, MOST = 0.25, 4.0
REPORT_FLAG = "-fopt-info-vec"
"""Flag that makes g++ report which loops it vectorised; it does not change the machine code."""
_VECTORISED = re.compile(
    r"^[^/\n:][^:\n]*:(\d+):\d+: optimized: +loop vectorized using (\d+) byte vectors",
    re.MULTILINE,
)
_WIDE = 16  # bytes; a narrower vector holds two numbers only
_DEAR = 8.0  # operations that a division or an exponential counts as
_INTENSE = 0.5  # operations a byte, above which arithmetic counts as the limit


@dataclass(frozen=True, slots=True)
class VectorReport:
    """Report of g++ on which innermost loops of a kernel it vectorised."""

    flags: tuple[str, ...]
    """Compiler flags of the reported build, sorted."""
    loops: Mapping[str, int]
    """Width of the widest vectors in bytes, by the loop's text; 0 if the loop was not
    vectorised."""

    def of(self, variant: Variant) -> tuple[int, int]:
        """Return the number of loops with wide vectors, and the number without.

        Loops that the report does not know are not counted.
        """
        if tuple(sorted(variant.flags)) != self.flags:
            return 0, 0
        known = [
            self.loops.get(text_of(loop.node)) for loop in innermost_loops(file_of(variant).cpp)
        ]
        wide = [bytes_ >= _WIDE for bytes_ in known if bytes_ is not None]
        return sum(wide), len(wide) - sum(wide)


def read_report(variant: Variant, log: str) -> VectorReport | None:
    """Return the report in a build's log; None if the kernel has no C++.

    Args:
        variant: The kernel, without `REPORT_FLAG` among its flags.
        log: `kernelgym.types.Build.log` of a build with that flag. Lines on headers and on code
            outside of loops are passed over.
    """
    if not holds_cpp(variant.language, variant.source):
        return None
    found = [(int(each[1]), int(each[2])) for each in _VECTORISED.finditer(log)]
    loops: dict[str, int] = {}
    for loop in innermost_loops(file_of(variant).cpp):
        # g++ names the line of the condition, in the head of the loop.
        first, last = loop.node.start_point.row + 1, loop.body_node.start_point.row + 1
        widest = max((width for line, width in found if first <= line <= last), default=0)
        text = text_of(loop.node)
        # Loops with the same text cannot be told apart: the narrowest vectors count.
        loops[text] = min(widest, loops.get(text, widest))
    return VectorReport(tuple(sorted(variant.flags)), loops)


def static_weights(
    variant: Variant, weights: Mapping[str, float], report: VectorReport | None = None
) -> dict[str, float]:
    """Return weights of moves, multiplied by factors for the kernel.

    Args:
        variant: The kernel; one without C++ leaves weights as they are.
        weights: Weights by id of the move.
        report: Compiler's report on the kernel, or on a kernel that differs a little from it.
    """
    if not holds_cpp(variant.language, variant.source):
        return dict(weights)
    found = factors(cost_of(file_of(variant).cpp))
    if report is not None:
        for name, factor in report_factors(*report.of(variant)).items():
            found[name] = _bounded(found.get(name, 1.0) * factor)
    return {name: weight * found.get(name, 1.0) for name, weight in weights.items()}


def report_factors(wide: int, plain: int) -> dict[str, float]:
    """Return factors by move, from the numbers of vectorised innermost loops.

    Args:
        wide: Number of loops with wide vectors.
        plain: Number of loops without.
    """
    if not wide + plain:
        return {}
    more = 1.5 if plain else 0.5  # where every loop has vectors, to ask for them changes little
    moves = ("vectorize_global_loads", "pad_tail_and_mask", "compiler_flags", "fast_math")
    blocks = ("register_block", "switch_to_mma_or_wgmma")
    return dict.fromkeys(moves, more) | dict.fromkeys(blocks, 1.2 if plain else 0.8)


def _bounded(factor: float) -> float:
    return min(MOST, max(LEAST, factor))


def factors(cost: LoopCost) -> dict[str, float]:
    """Return factors by move; other moves keep their weights."""
    work = cost.operations + _DEAR * (cost.divisions + cost.exponentials)
    intense = work > _INTENSE * max(cost.bytes_moved, 1)
    nest, costly = cost.depth >= 3, cost.divisions + cost.exponentials
    found = {
        "avoid_atomics_reduce": 4.0 if cost.atomics else 1.0,
        "hoist": 2.0 if costly else 1.0,
        "parallelise": 0.5 if cost.parallel else 1.5,
        # Where every element is near, another order has little to gain.
        "loop_order": 1.5 if cost.far else 0.4,
        "grouped_gemm_colmajor": 1.5 if cost.far else 0.7,
        "register_block": 1.5 if nest else 1.0,
        "switch_to_mma_or_wgmma": 2.0 if nest else 1.0,
        "change_block_sizes": 1.0 if cost.far and not cost.parallel else 0.5,
        "vectorize_global_loads": 0.5 if cost.far else 1.5,
        "softmax_math_fusion": 2.0 if costly else 0.5,
        "enable_async_pipeline": 1.0 if cost.far else 0.3,
        "cache_policy_cg": 0.3 if nest or intense else 1.5,
        "fast_math": 2.0 if cost.sums or costly else 0.5,
    }
    return {name: _bounded(factor) for name, factor in found.items()}
