"""Kinds of values in a reference's program, for evaluating it without running it.

Contract: plain data for `kernelgym.retrieval.operators`, which evaluates a module by these kinds. A
value is a tensor, a module, something callable, a container of values, or something else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum


class ValueKind(Enum):
    """Kind of a value that is not known otherwise: a tensor, or anything else."""

    TENSOR = "tensor"
    OTHER = "other"


TENSOR, OTHER = ValueKind.TENSOR, ValueKind.OTHER


@dataclass(frozen=True, slots=True)
class Dotted:
    """An imported module, class or function, by its whole dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class Layer:
    """An instance of a library's layer, such as `torch.nn.Linear`."""

    name: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method bound to a tensor, or to a value of unknown kind, in a reference's program."""

    name: str
    of_tensor: bool


@dataclass(eq=False, slots=True)
class Own:
    """An instance of a class that the reference's module defines."""

    kind: ast.ClassDef
    attributes: dict[str, object] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class OwnFunction:
    """A function or lambda that the reference's module defines, perhaps bound to an instance."""

    node: ast.FunctionDef | ast.Lambda
    owner: Own | None = None
    scope: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Super:
    """The value of ``super()`` in a method of the reference's module."""

    owner: Own


@dataclass(eq=False, slots=True)
class Many:
    """A list, tuple, dictionary or container of layers; a call applies its items in order."""

    values: list[object]
    names: dict[str, object] = field(default_factory=dict)
    """Named items of the container, by name."""


def is_tensor(value: object) -> bool:
    """Return True for the kind of a tensor, or of a container with one."""
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
    """Return `TENSOR` if a value is a tensor or contains one, else `OTHER`."""
    return TENSOR if is_tensor(value) else OTHER


def items_of(value: object) -> list[object]:
    """Return a container's items; for another value, one item of its kind."""
    return list(value.values) if isinstance(value, Many) else [kind_of(value)]


def flat(step: Callable[[int], None], values: Sequence[object]) -> list[object]:
    """Return values with containers flattened; `step` is called once for each value."""
    found: list[object] = []
    for value in values:
        step(1)
        if isinstance(value, Many):
            found += flat(step, value.values)
        elif value is not OTHER:
            found.append(value)
    return found


def joined(step: Callable[[int], None], *parts: Many) -> Many:
    """Return one container with the items of several; `step` is called with their number."""
    step(sum(len(part.values) for part in parts))
    names = {name: value for part in parts for name, value in part.names.items()}
    return Many([item for part in parts for item in part.values], names)


def zipped(name: str, values: Sequence[object]) -> object:
    """Return the container of tuples that ``enumerate`` or ``zip`` iterates over."""
    columns = list(map(items_of, values))
    rows = max(map(len, columns), default=0)
    if name == "enumerate":
        return Many([Many([OTHER, *row]) for row in zip(*columns[:1], strict=False)])
    padded = [column + [column[-1]] * (rows - len(column)) if column else [] for column in columns]
    return Many([Many(list(row)) for row in zip(*padded, strict=False)])
