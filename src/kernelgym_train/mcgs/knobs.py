"""`Knob`: a choice that leaves a variant's structure as it is.

Two variants have one structure if they differ in knobs alone. Structure is what a search explores
step by step; knobs are tuned together.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym_train.mcgs.variant import Variant

__all__ = ["ABSENT", "Knob", "KnobSpace"]

ABSENT = ""
"""The choice of a knob that is left as it was in the start."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice among several."""

    name: str
    """Unique in a structure, such as ``register_block/matrix_product/i``."""
    choices: tuple[str, ...]
    """Two at least; the first is what a structure begins with."""


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """The variants that differ from one in given knobs alone."""

    base: Variant
    knobs: tuple[Knob, ...]
