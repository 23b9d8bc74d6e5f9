"""Kinds of values that a reference's program handles.

Contract: plain data for `kernelgym.retrieval.operators`, which evaluates a module by these kinds. A
value is a tensor, a module, something callable, a container of values, or something else.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
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
    if isinstance(value, Many):
        return any(map(is_tensor, value.values))
    return value is TENSOR


def kind_of(value: object) -> object:
    """Return the kind of one item of a value."""
    return TENSOR if is_tensor(value) else OTHER


def items_of(value: object) -> list[object]:
    """Return a container's items, or one item of a value's kind."""
    return list(value.values) if isinstance(value, Many) else [kind_of(value)]


def flat(values: Sequence[object]) -> list[object]:
    """Return modules, those of containers in their places."""
    found: list[object] = []
    for value in values:
        found += flat(value.values) if isinstance(value, Many) else [value]
    return [value for value in found if value is not OTHER]


def zipped(name: str, values: Sequence[object]) -> object:
    """Return what ``enumerate`` or ``zip`` goes through."""
    columns = list(map(items_of, values))
    rows = max(map(len, columns), default=0)
    if name == "enumerate":
        return Many([Many([OTHER, *row]) for row in zip(*columns[:1], strict=False)])
    padded = [column + [column[-1]] * (rows - len(column)) if column else [] for column in columns]
    return Many([Many(list(row)) for row in zip(*padded, strict=False)])
