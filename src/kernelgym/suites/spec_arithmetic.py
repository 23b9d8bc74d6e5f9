"""Arithmetic in kernel specs: whole numbers, names, and five functions.

Contract: an expression is read as a syntax tree, and never run: whatever is not arithmetic is a
`UsageError` that names it. `evaluate` gives what `as_python` and `as_cpp` give where they are run.

============================  ======================================
``+ - * // %``, ``-x``, ``()``  as in Python
``ceil_div(a, b)``            a / b, rounded up; ``cdiv`` is the same
``min(...)``, ``max(...)``    of two or more
``next_power_of_2(a)``        the least power of 2 that is not below a
============================  ======================================
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kernelgym.errors import UsageError

_MOST_TEXT = 500
_MOST_NODES = 100
_MOST_VALUE = 2**63 - 1
_OPERATORS: Mapping[type[ast.operator], str] = MappingProxyType(
    {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _next_power_of_2(a: int) -> int:
    return 1 << (max(1, a) - 1).bit_length()


FUNCTIONS: Mapping[str, Callable[..., int]] = MappingProxyType(
    {
        "ceil_div": _ceil_div,
        "cdiv": _ceil_div,
        "min": min,
        "max": max,
        "next_power_of_2": _next_power_of_2,
    }
)
"""Functions that an expression may call, by name."""
_ARGUMENTS = {"ceil_div": (2, 2), "cdiv": (2, 2), "next_power_of_2": (1, 1)}


def names_in(expression: int | str) -> tuple[str, ...]:
    """Return the names that an expression uses, each once, in order.

    Raises:
        UsageError: If it is not arithmetic.
    """
    found: list[str] = []
    for node in ast.walk(_tree(expression)):
        if isinstance(node, ast.Name) and node.id not in FUNCTIONS and node.id not in found:
            found.append(node.id)
    return tuple(sorted(found, key=str(expression).index))


def evaluate(expression: int | str, values: Mapping[str, int]) -> int:
    """Return the value of an expression in a kernel spec.

    Args:
        expression: The expression; a number stands for itself.
        values: Value of each name.

    Raises:
        UsageError: If it is not arithmetic, names what has no value, divides by zero or exceeds
            64 bits.
    """
    try:
        return _value(_tree(expression), values)
    except ZeroDivisionError:
        raise UsageError(f"{expression!r} divides by zero with {dict(values)}") from None
    except KeyError as error:
        known = ", ".join(values) or "none"
        raise UsageError(
            f"{expression!r} uses {error.args[0]!r}, which is not defined; known: {known}"
        ) from None
    except OverflowError:
        raise UsageError(f"{expression!r} does not fit in 64 bits with {dict(values)}") from None


def as_python(expression: int | str) -> str:
    """Return an expression as Python that needs nothing but its names.

    Raises:
        UsageError: If it is not arithmetic.
    """
    return _python(_tree(expression))


CPP_FUNCTIONS = """\
#ifndef SPEC_ARITHMETIC
#define SPEC_ARITHMETIC
static int64_t spec_floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int64_t spec_mod(int64_t a, int64_t b) { return a - b * spec_floor_div(a, b); }
static int64_t spec_next_power_of_2(int64_t a) {
  int64_t power = 1;
  while (power < a) power *= 2;
  return power;
}
#endif
"""
"""C++ functions that `as_cpp` calls."""


def as_cpp(expression: int | str, names: Mapping[str, str]) -> str:
    """Return an expression as C++ of type ``int64_t``, which needs `CPP_FUNCTIONS`.

    Args:
        expression: The expression.
        names: C++ names of numbers, where they have others.

    Raises:
        UsageError: If it is not arithmetic.
    """
    return _cpp(_tree(expression), names)


def _cpp(node: ast.expr, names: Mapping[str, str]) -> str:
    match node:
        case ast.Constant(value=int() as value):
            return f"int64_t({value})"
        case ast.Name(id=name):
            return f"int64_t({names.get(name, name)})"
        case ast.UnaryOp():
            return f"(-{_cpp(node.operand, names)})"
        case ast.BinOp():
            left, right = _cpp(node.left, names), _cpp(node.right, names)
            if isinstance(node.op, ast.FloorDiv | ast.Mod):
                name = "floor_div" if isinstance(node.op, ast.FloorDiv) else "mod"
                return f"spec_{name}({left}, {right})"
            return f"({left} {_OPERATORS[type(node.op)]} {right})"
        case ast.Call(func=ast.Name(id=name)):
            given = [_cpp(argument, names) for argument in node.args]
            if name in ("ceil_div", "cdiv"):
                return f"(-spec_floor_div(-{given[0]}, {given[1]}))"
            if name == "next_power_of_2":
                return f"spec_next_power_of_2({given[0]})"
            return f"std::{name}({{{', '.join(given)}}})"
        case _:
            raise AssertionError("checked before")


def _tree(expression: int | str) -> ast.expr:
    """Return the checked syntax tree of an expression in a kernel spec."""
    if isinstance(expression, bool) or not isinstance(expression, int | str):
        raise UsageError(f"{expression!r} is not arithmetic; give a whole number or an expression")
    if len(str(expression)) > _MOST_TEXT:
        raise UsageError(f"an expression of {len(str(expression))} characters is too long")
    if not str(expression).isascii():  # Python takes some letters for others
        raise _no_arithmetic(expression, "holds letters other than those of ASCII")
    try:
        tree = ast.parse(str(expression).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _no_arithmetic(expression, "cannot be read") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise _no_arithmetic(expression, "has too many parts")
    _check(tree, expression)
    return tree


def _no_arithmetic(expression: int | str, why: str) -> UsageError:
    return UsageError(
        f"{expression!r} is not arithmetic: it {why}; whole numbers, names, + - * // % and "
        f"{', '.join(FUNCTIONS)} are"
    )


def _check(node: ast.expr, expression: int | str) -> None:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            if value > _MOST_VALUE:
                raise _no_arithmetic(expression, f"holds {value}, which does not fit in 64 bits")
        case ast.Name():
            if node.id in FUNCTIONS:
                raise _no_arithmetic(expression, f"uses the function {node.id} as a number")
        case ast.UnaryOp(op=ast.USub()):
            _check(node.operand, expression)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            _check(node.left, expression)
            _check(node.right, expression)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            least, most = _ARGUMENTS.get(name, (2, _MOST_NODES))
            if not least <= len(node.args) <= most:
                raise _no_arithmetic(expression, f"calls {name} with {len(node.args)} arguments")
            for argument in node.args:
                _check(argument, expression)
        case _:
            raise _no_arithmetic(expression, f"holds {ast.unparse(node)!r}")


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            found = number
        case ast.Name():
            found = values[node.id]
        case ast.UnaryOp():
            found = -_value(node.operand, values)
        case ast.BinOp():
            left, right = _value(node.left, values), _value(node.right, values)
            match node.op:
                case ast.Add():
                    found = left + right
                case ast.Sub():
                    found = left - right
                case ast.Mult():
                    found = left * right
                case ast.FloorDiv():
                    found = left // right
                case _:
                    found = left % right
        case ast.Call(func=ast.Name(id=name)):
            found = FUNCTIONS[name](*(_value(argument, values) for argument in node.args))
        case _:
            raise AssertionError("checked before")
    if abs(found) > _MOST_VALUE:
        raise OverflowError
    return found


def _python(node: ast.expr) -> str:
    match node:
        case ast.UnaryOp():
            return f"(-{_python(node.operand)})"
        case ast.BinOp():
            sign = _OPERATORS[type(node.op)]
            return f"({_python(node.left)} {sign} {_python(node.right)})"
        case ast.Call(func=ast.Name(id=name)):
            given = [_python(argument) for argument in node.args]
            if name in ("ceil_div", "cdiv"):
                return f"(-(-{given[0]} // {given[1]}))"
            if name == "next_power_of_2":
                return f"(1 << (max(1, {given[0]}) - 1).bit_length())"
            return f"{name}({', '.join(given)})"
        case _:
            return ast.unparse(node)
