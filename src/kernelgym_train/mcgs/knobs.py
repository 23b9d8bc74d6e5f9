"""`Knob`: a choice that leaves a variant's structure as it is.

Two variants have the same structure if they differ in knobs alone. A search explores structures
step by step, and tunes the knobs of a structure together.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym_train.mcgs.variant import Variant

ABSENT = ""
"""The choice of a knob that is left as it was in the start."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A place of a variant where one of several choices is made."""

    name: str
    """Name, unique in a structure, such as ``register_block/matrix_product/i``."""
    choices: tuple[str, ...]
    """Choices, at least two; a structure begins with the first."""


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """The variants that differ from one in given knobs alone."""

    base: Variant
    knobs: tuple[Knob, ...]
