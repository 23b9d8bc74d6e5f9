"""`Knob`: a choice within a kernel, such as a tile size, that a tuner combines with others."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym_train.mcgs.variant import Variant

ABSENT = ""
"""Choice that leaves a knob as it was in the start kernel."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A choice to be made within a variant, such as a tile size, with its possible values."""

    name: str
    """Name of the knob, unique in its space, such as ``register_block/matrix_product/i``."""
    choices: tuple[str, ...]
    """Possible values, at least two; the first is `ABSENT`."""
    tried_first: bool = False
    """Whether each choice is tried alone before knobs are combined."""


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """The variants that result from one by setting its knobs."""

    base: Variant
    knobs: tuple[Knob, ...]
