"""`SearchMove`: what a search may do to a kernel.

Contract: a transform yields its realisations in a fixed order, and none whose precondition it
cannot prove. It reads the variant alone: no clock, no random numbers, no hash order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kernelgym_train.mcgs.variant import Variant

__all__ = ["RISKS", "Realisation", "Risk", "SearchMove", "with_flag"]

Risk = Literal["exact", "reassociates", "approximate"]
RISKS: tuple[Risk, ...] = ("exact", "reassociates", "approximate")
"""From none to much: how far results may move.

``exact``: each element is computed by the same operations in the same order (the compiler may fuse
a product and a sum where the machine can). ``reassociates``: sums are taken in another order.
``approximate``: less accurate, or wrong for infinities and NaN."""


@dataclass(frozen=True, slots=True)
class Realisation:
    """One way to make a move at one place."""

    target: str
    choice: str
    variant: Variant
    """What results; `Variant.applied` is left to the caller."""
    risk: Risk = "exact"


@dataclass(frozen=True, slots=True)
class SearchMove:
    """A kind of change."""

    id: str
    risk: Risk
    """The most that any of its realisations has."""
    phase: int
    """When it is made, where several are: from 0, structure before directives before flags."""
    weight: float
    """How much a search expects of it before it has tried: a prior, not normalised."""
    recipe: str
    """What it does, in one sentence for a person or a model."""
    realise: Callable[[Variant], Iterator[Realisation]]
    knob: Literal["", "choice", "presence"] = ""
    """What of a step a tuner may change without changing the structure: nothing; the choice, where
    the step is made; or whether it is made as well."""
    languages: tuple[str, ...] = ("cpp",)
    """Languages of the kernels that the move changes."""


def with_flag(variant: Variant, *added: str) -> Variant:
    """Return a variant with flags added in place of those overruled."""
    flags = list(variant.flags)
    for flag in added:
        flags = [each for each in flags if _slot(each) != _slot(flag)]
        flags.append(flag)
    return dataclasses.replace(variant, flags=tuple(flags))


def _slot(flag: str) -> str:
    """Return what flags that overrule each other share."""
    if flag.startswith("-O"):
        return "-O"
    if flag.startswith("-fno-"):
        return "-f" + flag[5:]
    return flag.partition("=")[0]
