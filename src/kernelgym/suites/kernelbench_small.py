"""Small forms of KernelBench's problems: the same modules with smaller sizes.

The id of a small form is the problem's, followed by ``@small``. Its source is the problem's own,
with some whole numbers replaced: values of module constants, and numbers in ``get_inputs`` and
``get_init_inputs``. Every other byte stays, and so do all lines. The table
``kernelbench_small_sizes.tsv`` says which numbers are replaced: facts that
``benchmarks/conformance/small_sizes.py`` found by trying. A row names the value that it replaces,
and a module with another value there is refused: the row was made for another version of it.

This module runs no problem's source. It does not know whether a small form is worth anything:
that stands in ``kernelbench_small_facts.tsv`` (see `kernelgym.suites.kernelbench_facts`).
"""

from __future__ import annotations

import ast
import csv
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from kernelgym.errors import ProblemError
from kernelgym.types import Problem

SMALL = "@small"
"""Ending of the id of a small form."""

_FUNCTIONS = ("get_inputs", "get_init_inputs")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Pow)


@dataclass(frozen=True, slots=True)
class SizeConstant:
    """A whole number in a module's text, and its place."""

    name: str
    """Name of the constant: ``N``; ``widths[1]`` for the second number of a list;
    ``get_inputs()[0]`` in a function."""
    value: int
    """Value in the text."""
    first: tuple[int, int]
    """Place of the number's first byte: line from 1, and byte within that line from 0."""
    last: tuple[int, int]
    """Place after the number's last byte, counted in the same way."""


def size_constants(source: str) -> Mapping[str, SizeConstant]:
    """Return the whole numbers of a module that may be sizes.

    Products and the like of numbers count as one: ``N = 2048 * 2`` is 4096. Of a name that is
    assigned more than once, the last assignment counts.

    Raises:
        ProblemError: If the source is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ProblemError(f"a problem's source is not valid Python: {error}") from None
    found: dict[str, SizeConstant] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for name, value in _assigned(node):
                for earlier in [key for key in found if key.partition("[")[0] == name]:
                    del found[earlier]
                found |= _named(name, [value])
        elif isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
            found |= _named(f"{node.name}()", node.body, always_numbered=True)
    return MappingProxyType(found)


def resized(source: str, values: Mapping[str, int]) -> str:
    """Return a source with new values for some of its `size_constants`.

    Raises:
        ProblemError: If the source has no constant of such a name.
    """
    known = size_constants(source)
    if unknown := [name for name in values if name not in known]:
        raise ProblemError(
            f"the source has no size constant {', '.join(unknown)}; it has {', '.join(known)}"
        )
    # Positions in a syntax tree count bytes, and lines end where Python's tokenizer ends them.
    lines = source.encode("utf-8").split(b"\n")
    for constant in sorted((known[name] for name in values), key=lambda c: c.first, reverse=True):
        (row, start), (last_row, end) = constant.first, constant.last
        kept = lines[last_row - 1][end:]
        # A value that spans lines leaves them empty, so that all later lines keep their numbers.
        for between in range(row, last_row):
            lines[between] = b""
        new = str(values[constant.name]).encode()
        lines[row - 1] = lines[row - 1][:start] + new + (kept if row == last_row else b"")
        if row != last_row:
            lines[last_row - 1] = kept
    return b"\n".join(lines).decode("utf-8")


def small_sizes(problem_id: str) -> Mapping[str, tuple[int, int]]:
    """Return the values that a problem's small form replaces, as (old, new), by constant.

    Args:
        problem_id: The id of the problem in full size.
    """
    return _table().get(problem_id, MappingProxyType({}))


def small_form(problem: Problem) -> Problem:
    """Return a problem with smaller inputs, as the table of small sizes says.

    Raises:
        ProblemError: If it has none, or its source is not the one that the table was made for.
    """
    from kernelgym.suites.kernelbench_facts import fact

    if fact(problem.id + SMALL, problem.name) is None:
        full = fact(problem.id, problem.name)
        why = (full and full.no_small_form) or "the table of small sizes lacks it"
        raise ProblemError(
            f"{problem.id} ({problem.name}) has no small form: {why}. Choose another problem, or "
            "leave sizes='small' out to get the problem in full size"
        )
    rows = small_sizes(problem.id)
    known = size_constants(problem.source)
    for name, (old, _) in rows.items():
        if name not in known or known[name].value != old:
            there = f"{name} = {known[name].value}" if name in known else f"no {name}"
            raise ProblemError(
                f"{problem.id} ({problem.name}) has no small form in this version of KernelBench: "
                f"the table of small sizes was made for {name} = {old}, and the source has {there}."
                " Take a version of KernelBench that the table was made for, or another problem"
            )
    source = resized(problem.source, {name: new for name, (_, new) in rows.items()})
    return dataclasses.replace(problem, id=problem.id + SMALL, source=source)


def _assigned(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) of an assignment; for ``a = b = 1`` the name is ``a``."""
    first = node.targets[0]
    if isinstance(first, ast.Name):
        yield first.id, node.value
    elif (
        isinstance(first, ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and len(first.elts) == len(node.value.elts)
    ):
        for target, value in zip(first.elts, node.value.elts, strict=True):
            if isinstance(target, ast.Name):
                yield target.id, value


def _named(
    name: str, nodes: list[ast.expr] | list[ast.stmt], always_numbered: bool = False
) -> dict[str, SizeConstant]:
    numbers = [number for node in nodes for number in _numbers(node)]
    alone = len(nodes) == 1 and len(numbers) == 1 and numbers[0][0] is nodes[0]
    named = {}
    for index, (node, value) in enumerate(numbers):
        key = name if alone and not always_numbered else f"{name}[{index}]"
        end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
        named[key] = SizeConstant(key, value, (node.lineno, node.col_offset), end)
    return named


def _numbers(node: ast.AST) -> Iterator[tuple[ast.expr, int]]:
    """Yield the outermost whole numbers of a syntax tree, in the order of the text."""
    if isinstance(node, ast.expr) and (value := _value(node)) is not None:
        yield node, value
        return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child)


def _value(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        left, right = _value(node.left), _value(node.right)
        if left is None or right is None:
            return None
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv():
                return left // right if right else None
            case _:
                return left**right if 0 <= right <= 64 and abs(left) <= 1 << 20 else None
    return None


def packaged_rows(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a tab-separated table beside this module, each by column."""
    text = files("kernelgym.suites").joinpath(name).read_text("utf-8")
    yield from csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)


@cache
def _table() -> Mapping[str, Mapping[str, tuple[int, int]]]:
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for row in packaged_rows("kernelbench_small_sizes.tsv"):
        constants = found.setdefault(f"KernelBench/L{row['level']}/{row['id']}", {})
        constants[row["constant"]] = int(row["old"]), int(row["new"])
    return MappingProxyType({key: MappingProxyType(value) for key, value in found.items()})
