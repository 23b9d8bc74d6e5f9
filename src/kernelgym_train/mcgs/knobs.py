"""`Knob`: a step of a search as a choice that a tuner makes together with others."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym_train.mcgs.variant import Variant

ABSENT = ""
"""The choice of a knob that is left as it was in the start."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A place of a variant where one of several choices is made."""

    name: str
    """Name, unique in a space, such as ``register_block/matrix_product/i``."""
    choices: tuple[str, ...]
    """Choices, at least two; the first is `ABSENT`."""
    tried_first: bool = False
    """Whether each choice is tried alone before knobs are combined."""


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """The variants that differ from one in given knobs alone."""

    base: Variant
    knobs: tuple[Knob, ...]
