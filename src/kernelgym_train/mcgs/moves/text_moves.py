"""`triton_move` and `extension_move`: moves that change a kernel's text.

The text of a Triton kernel is its module, that of a kernel that ``load_inline`` builds its C++ or
CUDA.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kernelgym_train.mcgs.cpp.extension import file_of, with_cpp
from kernelgym_train.mcgs.moves.definition import (
    Realisation,
    Risk,
    SearchMove,
    search_move,
    with_flag,
)
from kernelgym_train.mcgs.triton.module import TritonModule, read_module
from kernelgym_train.mcgs.variant import Variant

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChangedText:
    """Text of a kernel after a move."""

    target: str
    choice: str
    text: str
    risk: Risk | None = None
    """Risk of this change; None for the risk of the move."""
    flags: tuple[str, ...] = ()
    """Compiler flags that the text needs."""


def triton_move(
    risk: Risk, *, phase: int, weight: float, tried_first: bool = False
) -> Callable[[Callable[[TritonModule], Iterator[ChangedText]]], SearchMove]:
    """Return a decorator that turns a function that yields changed modules into a move.

    See `kernelgym_train.mcgs.moves.definition.search_move`.
    """

    def write(variant: Variant, changed: ChangedText) -> Variant:
        return dataclasses.replace(variant, source=changed.text)

    move = search_move(risk, phase=phase, weight=weight, language="triton", tried_first=tried_first)
    return lambda change: move(_realised(change, lambda v: read_module(v.source), write, risk))


def extension_move(
    risk: Risk, *, phase: int, weight: float, language: str = "cpp", tried_first: bool = False
) -> Callable[[Callable[[str], Iterator[ChangedText]]], SearchMove]:
    """Return a decorator that turns a function that yields changed C++ or CUDA texts into a move.

    See `kernelgym_train.mcgs.moves.definition.search_move`.
    """

    def write(variant: Variant, changed: ChangedText) -> Variant:
        return with_flag(with_cpp(variant, changed.text), *changed.flags)

    move = search_move(risk, phase=phase, weight=weight, language=language, tried_first=tried_first)
    return lambda change: move(_realised(change, lambda v: file_of(v).cpp, write, risk))


def _realised(
    change: Callable[[T], Iterator[ChangedText]],
    read: Callable[[Variant], T],
    write: Callable[[Variant, ChangedText], Variant],
    risk: Risk,
) -> Callable[[Variant], Iterator[Realisation]]:
    """Return a function that yields a move's variants, made from a function that changes texts."""

    @functools.wraps(change)
    def realise(variant: Variant) -> Iterator[Realisation]:
        for each in change(read(variant)):
            made = write(variant, each)
            yield Realisation(each.target, each.choice, made, each.risk or risk)

    return realise
