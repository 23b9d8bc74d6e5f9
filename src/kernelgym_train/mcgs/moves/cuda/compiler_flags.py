"""`compiler_flags` and `fast_math` of nvcc."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.moves.definition import Realisation, Risk, SearchMove, with_flag
from kernelgym_train.mcgs.variant import Variant

_REGISTERS = (64, 128, 96, 48, 168)


def _exact(variant: Variant) -> Iterator[Realisation]:
    """Yield limits of registers."""
    for count in _REGISTERS:
        flag = f"-maxrregcount={count}"
        if flag not in variant.flags:
            yield Realisation("registers", str(count), with_flag(variant, flag))


def _fast(variant: Variant) -> Iterator[Realisation]:
    """Yield all inaccurate forms of functions at once, then divisions and roots alone."""
    risk: Risk = "approximate"
    if "--use_fast_math" not in variant.flags:
        yield Realisation("math", "all", with_flag(variant, "--use_fast_math"), risk)
        changed = with_flag(variant, "-prec-div=false", "-prec-sqrt=false")
        yield Realisation("math", "divisions and roots", changed, risk)


COMPILER_FLAGS = SearchMove(
    "compiler_flags",
    "exact",
    90,
    0.6,
    "Limit the registers of a thread, so that more blocks fit a multiprocessor.",
    _exact,
    ("cuda",),
)
FAST_MATH = SearchMove(
    "fast_math",
    "approximate",
    91,
    0.5,
    "Let the compiler take less accurate forms of functions, divisions and roots.",
    _fast,
    ("cuda",),
)
