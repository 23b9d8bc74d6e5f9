"""`TextProposer`: proposes kernels that were written as whole texts, not made by moves.

Contract: each kernel is proposed once, as a child of the start. When the search minimises such a
kernel, it takes back changed lines in place of steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from kernelgym import Kernel, UsageError
from kernelgym_train.mcgs.knobs import KnobSpace
from kernelgym_train.mcgs.moves.definition import Risk
from kernelgym_train.mcgs.proposing import Proposal, Proposer
from kernelgym_train.mcgs.variant import MoveStep, Variant, read_variant
from kernelgym_train.mcgs.writing.hunks import without_each_hunk

_MOVE = "text"


class TextProposer(Proposer):
    """Proposes kernels that the caller gives.

    Args:
        start: Kernel that the search starts from.
        kernels: Kernels by name; names are shown to the reader.
        risk: Risk of all kernels.

    Raises:
        UsageError: If a kernel is not in the start's language, or a search cannot read it.
    """

    def __init__(
        self, start: Kernel, kernels: Mapping[str, Kernel], risk: Risk = "approximate"
    ) -> None:
        self._start, self._risk = start, risk
        self._offered = []
        for name, kernel in kernels.items():
            if kernel.language != start.language:
                raise UsageError(
                    f"the kernel {name!r} is in {kernel.language}, and the start in "
                    f"{start.language}; give kernels of one language"
                )
            step = MoveStep(_MOVE, "module", name)
            variant = dataclasses.replace(read_variant(kernel), applied=(step,))
            self._offered.append(Proposal(step, variant, risk))

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        """Return the one move of this proposer, which can be made at the start."""
        return () if variant.applied else ((_MOVE, 1.0),)

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        """Return the proposal of the kernel with a number; None if there are fewer kernels."""
        if variant.applied or move != _MOVE or attempt >= len(self._offered):
            return None
        return self._offered[attempt]

    def simpler(self, variant: Variant) -> Sequence[Proposal]:
        """Return one variant for each change of the kernel's text, without that change."""
        found = []
        for where, digest, source in without_each_hunk(self._start.source, variant.kernel().source):
            try:
                less = read_variant(Kernel(source, variant.language))
            except UsageError:
                continue  # the rest of the change is no kernel
            applied = (*variant.applied, MoveStep("without", where, digest))
            less = dataclasses.replace(less, applied=applied)
            found.append(Proposal(MoveStep("hunk", where, digest), less, self._risk))
        return found

    def space(self) -> KnobSpace:
        """Return the start alone: it has no knobs."""
        return KnobSpace(read_variant(self._start), ())

    def values(self, space: KnobSpace, variant: Variant) -> Mapping[str, str] | None:
        """Return no values: there are no knobs."""
        return {} if variant.source == space.base.source else None

    def tuned(self, space: KnobSpace, values: Mapping[str, str]) -> Proposal | None:
        """Return None: there is nothing to tune."""
        return None
