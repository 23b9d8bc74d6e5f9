"""Kinds of values that a reference's program handles.

Contract: plain data for `kernelgym.retrieval.operators`, which evaluates a module by these kinds. A
value is a tensor, a module, something callable, a container of values, or something else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

__all__ = [
    "OTHER",
    "TENSOR",
    "Dotted",
    "Function",
    "Kind",
    "Layer",
    "Many",
    "Method",
    "Own",
    "Super",
    "flat",
    "is_tensor",
    "items_of",
    "joined",
    "kind_of",
    "zipped",
]


class Kind(Enum):
    """Values of which only the kind is known."""

    TENSOR = "tensor"
    OTHER = "other"


TENSOR, OTHER = Kind.TENSOR, Kind.OTHER


@dataclass(frozen=True, slots=True)
class Dotted:
    """Something imported, by its whole name."""

    name: str


@dataclass(frozen=True, slots=True)
class Layer:
    """A library's module, ready to be called."""

    name: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a tensor, or of something unknown."""

    name: str
    of_tensor: bool


@dataclass(eq=False, slots=True)
class Own:
    """An instance of a class of the module."""

    kind: ast.ClassDef
    attributes: dict[str, object] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Function:
    """A function or lambda of the module, perhaps bound to an instance."""

    node: ast.FunctionDef | ast.Lambda
    owner: Own | None = None
    scope: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Super:
    """What ``super()`` gives in a method of the module."""

    owner: Own


@dataclass(eq=False, slots=True)
class Many:
    """A list, tuple or container of modules; a call goes through it."""

    values: list[object]
    names: dict[str, object] = field(default_factory=dict)
    """Those that are found by a name."""


def is_tensor(value: object) -> bool:
    """Return True for a tensor, or a container with one."""
    todo, seen = [value], set[int]()
    while todo:
        here = todo.pop()
        if here is TENSOR:
            return True
        # A list may hold one list many times over, and that one another.
        if isinstance(here, Many) and id(here) not in seen:
            seen.add(id(here))
            todo += here.values
    return False


def kind_of(value: object) -> object:
    """Return the kind of one item of a value."""
    return TENSOR if is_tensor(value) else OTHER


def items_of(value: object) -> list[object]:
    """Return a container's items, or one item of a value's kind."""
    return list(value.values) if isinstance(value, Many) else [kind_of(value)]


def flat(step: Callable[[int], None], values: Sequence[object]) -> list[object]:
    """Return modules, those of containers in their places; `step` is told of each."""
    found: list[object] = []
    for value in values:
        step(1)
        if isinstance(value, Many):
            found += flat(step, value.values)
        elif value is not OTHER:
            found.append(value)
    return found


def joined(step: Callable[[int], None], *parts: Many) -> Many:
    """Return a new container of others' items; `step` is told how many."""
    step(sum(len(part.values) for part in parts))
    names = {name: value for part in parts for name, value in part.names.items()}
    return Many([item for part in parts for item in part.values], names)


def zipped(name: str, values: Sequence[object]) -> object:
    """Return what ``enumerate`` or ``zip`` goes through."""
    columns = list(map(items_of, values))
    rows = max(map(len, columns), default=0)
    if name == "enumerate":
        return Many([Many([OTHER, *row]) for row in zip(*columns[:1], strict=False)])
    padded = [column + [column[-1]] * (rows - len(column)) if column else [] for column in columns]
    return Many([Many(list(row)) for row in zip(*padded, strict=False)])
