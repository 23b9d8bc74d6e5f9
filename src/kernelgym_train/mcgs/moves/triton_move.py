"""`triton_move`: moves that change the text of a module with Triton kernels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernelgym_train.mcgs.moves.definition import Realisation, Risk, SearchMove, search_move
from kernelgym_train.mcgs.triton.module import TritonModule, read_module
from kernelgym_train.mcgs.variant import Variant


@dataclass(frozen=True, slots=True)
class ChangedModule:
    """The text of a module after a move."""

    target: str
    choice: str
    source: str
    risk: Risk | None = None
    """Risk of this way to make the move; None for the move's own."""


def triton_move(
    risk: Risk, *, phase: int, weight: float, tried_first: bool = False
) -> Callable[[Callable[[TritonModule], Iterator[ChangedModule]]], SearchMove]:
    """Return a decorator that makes a move of the function that yields changed modules.

    See `kernelgym_train.mcgs.moves.definition.search_move`.
    """

    def made(change: Callable[[TritonModule], Iterator[ChangedModule]]) -> SearchMove:
        @functools.wraps(change)
        def realise(variant: Variant) -> Iterator[Realisation]:
            for each in change(read_module(variant.source)):
                changed = dataclasses.replace(variant, source=each.source)
                yield Realisation(each.target, each.choice, changed, each.risk or risk)

        return search_move(
            risk, phase=phase, weight=weight, language="triton", tried_first=tried_first
        )(realise)

    return made
