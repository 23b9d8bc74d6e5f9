"""`compiler_flags` and `fast_math`: flags that let the compiler optimise more."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.moves.definition import Realisation, search_move, with_flag
from kernelgym_train.mcgs.variant import Variant

_EXACT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("level", ("-O3", "-march=native")),
    ("level", ("-O3",)),
    ("level", ("-O2", "-march=native")),
    ("errno", ("-fno-math-errno", "-fno-trapping-math")),
    ("width", ("-mprefer-vector-width=512",)),
    ("unrolling", ("-funroll-loops",)),
)
_APPROXIMATE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("math", ("-ffast-math",)),
    ("math", ("-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math")),
)


@search_move("exact", phase=70, weight=3.0)
def compiler_flags(variant: Variant) -> Iterator[Realisation]:
    """Have the compiler optimise more, for this machine, by flags that let it reorder no sums.

    Yields levels of optimisation, and flags of which ``-march=native`` alone may change a result:
    it lets the compiler fuse a product and a sum.
    """
    for target, flags in _EXACT:
        changed = with_flag(variant, *flags)
        if set(changed.flags) != set(variant.flags):
            yield Realisation(target, " ".join(flags), changed)


@search_move("approximate", phase=71, weight=1.0)
def fast_math(variant: Variant) -> Iterator[Realisation]:
    """Let the compiler reorder sums and ignore NaN, infinities and signs of zero.

    Yields flags that let the compiler change results.
    """
    for target, flags in _APPROXIMATE:
        changed = with_flag(variant, *flags)
        if set(changed.flags) != set(variant.flags):
            yield Realisation(target, " ".join(flags), changed, "approximate")
