"""`SearchMove`: a kind of change that a search may make to a kernel.

Contract: a move yields its realisations in a fixed order, and none whose precondition it cannot
prove. They depend on the variant alone: not on a clock, random numbers or the order of hashes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kernelgym_train.mcgs.variant import Variant

Risk = Literal["exact", "reassociates", "approximate"]
RISKS: tuple[Risk, ...] = ("exact", "reassociates", "approximate")
"""Risks in rising order: how far a kernel's results may change.

``exact``: each element is computed by the same operations in the same order (the compiler may fuse
a product and a sum where the machine can). ``reassociates``: sums are taken in another order.
``approximate``: less accurate, or wrong for infinities and NaN."""


@dataclass(frozen=True, slots=True)
class Realisation:
    """One variant that a move yields, by changing one place in one way."""

    target: str
    choice: str
    variant: Variant
    """Kernel text, compiler flags and meta-parameters after this move.

    The caller sets the list of moves so far, `Variant.applied`."""
    risk: Risk = "exact"


@dataclass(frozen=True, slots=True)
class SearchMove:
    """A kind of change that a search may make to a kernel."""

    id: str
    risk: Risk
    """Highest risk of the move's realisations."""
    phase: int
    """Position in the order in which moves are applied, from 0: structure, directives, flags."""
    weight: float
    """Prior of the move, not normalised: the gain that a search expects before it has tried the
    move."""
    recipe: str
    """Description of the change in one sentence, for a person or a model."""
    realise: Callable[[Variant], Iterator[Realisation]]
    languages: tuple[str, ...] = ("cpp",)
    """Languages of the kernels that the move changes."""
    tried_first: bool = False
    """Whether a tuner tries each proposal of the move alone before it combines steps: for moves
    that change a whole kernel."""


def search_move(
    risk: Risk,
    *,
    phase: int,
    weight: float,
    language: str = "cpp",
    tried_first: bool = False,
) -> Callable[[Callable[[Variant], Iterator[Realisation]]], SearchMove]:
    """Return a decorator that turns a function that yields realisations into a move.

    The function's name is the move's id, and the first line of its docstring the recipe. Arguments
    are the fields of `SearchMove`.
    """

    def made(realise: Callable[[Variant], Iterator[Realisation]]) -> SearchMove:
        recipe = (realise.__doc__ or "").partition("\n")[0]
        name = realise.__name__
        return SearchMove(name, risk, phase, weight, recipe, realise, (language,), tried_first)

    return made


def with_flag(variant: Variant, *added: str) -> Variant:
    """Return a variant with flags added, which replace the flags that they overrule."""
    flags = list(variant.flags)
    for flag in added:
        flags = [each for each in flags if _slot(each) != _slot(flag)]
        flags.append(flag)
    return dataclasses.replace(variant, flags=tuple(flags))


def _slot(flag: str) -> str:
    """Return the key of a compiler flag; flags with the same key overrule each other."""
    if flag.startswith("-O"):
        return "-O"
    if flag.startswith("-fno-"):
        return "-f" + flag[5:]
    return flag.partition("=")[0]
