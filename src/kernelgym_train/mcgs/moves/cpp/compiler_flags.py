"""`compiler_flags` and `fast_math`: flags that let the compiler optimise more."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.moves.definition import Realisation, SearchMove, with_flag
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


def _realise_exact(variant: Variant) -> Iterator[Realisation]:
    """Yield levels of optimisation, and flags that change no result."""
    for target, flags in _EXACT:
        changed = with_flag(variant, *flags)
        if set(changed.flags) != set(variant.flags):
            yield Realisation(target, " ".join(flags), changed)


def _realise_fast(variant: Variant) -> Iterator[Realisation]:
    """Yield flags that let the compiler change results."""
    for target, flags in _APPROXIMATE:
        changed = with_flag(variant, *flags)
        if set(changed.flags) != set(variant.flags):
            yield Realisation(target, " ".join(flags), changed, "approximate")


COMPILER_FLAGS = SearchMove(
    "compiler_flags",
    "exact",
    70,
    3.0,
    "Have the compiler optimise more, for this machine, by flags that change no result.",
    _realise_exact,
)
FAST_MATH = SearchMove(
    "fast_math",
    "approximate",
    71,
    1.0,
    "Let the compiler reorder sums and ignore NaN, infinities and signs of zero.",
    _realise_fast,
)
