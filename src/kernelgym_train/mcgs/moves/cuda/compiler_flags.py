"""`compiler_flags` and `fast_math`: flags of nvcc for a CUDA kernel."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.moves.definition import Realisation, Risk, search_move, with_flag
from kernelgym_train.mcgs.variant import Variant

_REGISTERS = (64, 128, 96, 48, 168)


@search_move("exact", phase=90, weight=0.6, language="cuda")
def compiler_flags(variant: Variant) -> Iterator[Realisation]:
    """Limit the registers of a thread, so that more blocks fit a multiprocessor.

    Yields limits of registers.
    """
    for count in _REGISTERS:
        flag = f"-maxrregcount={count}"
        if flag not in variant.flags:
            yield Realisation("registers", str(count), with_flag(variant, flag))


@search_move("approximate", phase=91, weight=0.5, language="cuda")
def fast_math(variant: Variant) -> Iterator[Realisation]:
    """Let the compiler take less accurate forms of functions, divisions and roots.

    Yields all inaccurate forms of functions at once, then divisions and roots alone.
    """
    risk: Risk = "approximate"
    if "--use_fast_math" not in variant.flags:
        yield Realisation("math", "all", with_flag(variant, "--use_fast_math"), risk)
        changed = with_flag(variant, "-prec-div=false", "-prec-sqrt=false")
        yield Realisation("math", "divisions and roots", changed, risk)
