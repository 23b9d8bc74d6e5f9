"""Names of operations by their operands, such as scale, shift and square.

Contract: pure functions of names, kinds of operands and their expressions. A name depends on
neither the spelling (method, function or infix) nor the value of a constant, but for exponents, a
floor of zero and the idioms in `IDIOMS`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from kernelgym.retrieval.kinds import is_tensor
from kernelgym.retrieval.names import NAMES
from kernelgym.types import text_digest

DEPTHWISE = "depthwise_"
"""Prefix of the name of a convolution with as many groups as input channels."""
_GROUPS = 6
"""Position of `groups` among the arguments of a convolution's constructor."""

INFIX = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul",
    ast.Pow: "pow", ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.BitAnd: "logical_and",
    ast.BitOr: "logical_or", ast.BitXor: "logical_xor",
}  # fmt: skip
COMPARED = {
    ast.Gt: "gt", ast.Lt: "lt", ast.GtE: "ge", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_BY_SCALAR = {"mul": "scale", "div": "scale", "add": "shift", "sub": "shift"}
_TO_THE = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
IDIOMS = {
    ("mul", "sigmoid"): "silu",
    ("mul", "softplus", "tanh"): "mish",
    ("mul", "shift", "relu6"): "hardswish",
    ("div", "abs", "shift"): "softsign",
    ("where", "gt", "scale"): "leaky_relu",
    ("where", "gt"): "relu",
    ("log1p", "exp"): "softplus",
    ("reciprocal", "sqrt"): "rsqrt",
}
"""Operators that are spelled by others: the last operator and those that computed its operands,
and the name of the whole."""
_TABLES = (*NAMES, INFIX, COMPARED, _BY_SCALAR, _TO_THE, IDIOMS)


def tables_digest() -> str:
    """Return a digest of the tables that name operators and their families.

    An index that was built by other tables must be refused: its keys would not meet a problem's.
    """
    rows = [table.items() if isinstance(table, dict) else table for table in _TABLES]
    return text_digest("\n".join(" ".join(sorted(map(repr, each))) for each in rows))


def arithmetic(
    name: str, values: Sequence[object], nodes: Sequence[ast.expr], since: int
) -> tuple[str, int | None]:
    """Return an operation's name, and the position of the operator where its idiom may begin."""
    if len(values) < 2:
        return name, None
    scalars = [not is_tensor(value) for value in values[:2]]
    if name == "pow":
        return _TO_THE.get(number(nodes[1]) or 0, "pow"), None
    if name == "div" and scalars[0]:
        return "reciprocal", since
    if name in _BY_SCALAR and any(scalars):
        return _BY_SCALAR[name], None
    if name in ("mul", "div"):
        if ast.dump(nodes[0]) == ast.dump(nodes[1]) and name == "mul":
            return "square", None
        return name, since if _reads(nodes[1], nodes[0]) else None
    return name, None


def bounded(name: str, nodes: Sequence[ast.expr], words: Mapping[str | None, ast.expr]) -> str:
    """Return the name of a clamp by its bounds: ``relu`` if its only bound is a lower one of zero.

    Args:
        name: ``clamp``, or ``maximum`` as ``clamp_min`` is called.
        nodes: Expressions of the tensor and the positional arguments.
        words: Expressions of the keyword arguments.
    """
    low, high = _bound("min", 1, nodes, words), _bound("max", 2, nodes, words)
    if low is not None and high is None:
        return "relu" if number(low) == 0 else "maximum"
    return "minimum" if low is None and high is not None else name


def layer(name: str, node: ast.Call) -> str:
    """Return the name of a layer by its constructor's arguments.

    A convolution is depthwise if it has as many groups as input channels, by the same expression.

    Args:
        name: Name of the layer's operator, such as ``conv2d``.
        node: The call of the constructor.
    """
    if name not in ("conv1d", "conv2d", "conv3d"):
        return name
    words = {word.arg: word.value for word in node.keywords}
    by_place = dict(enumerate(node.args))
    groups = words.get("groups", by_place.get(_GROUPS))
    channels = words.get("in_channels", by_place.get(0))
    if groups is None or channels is None or number(groups) == 1:
        return name
    return f"{DEPTHWISE}{name}" if ast.dump(groups) == ast.dump(channels) else name


def _bound(
    side: str, place: int, nodes: Sequence[ast.expr], words: Mapping[str | None, ast.expr]
) -> ast.expr | None:
    """Return the expression of a clamp's bound, given by keyword or position; None without one."""
    by_place = nodes[place] if len(nodes) > place else None
    found = words.get(side) or words.get(f"{side}_val") or by_place
    return None if isinstance(found, ast.Constant) and found.value is None else found


def number(node: ast.expr) -> float | int | None:
    """Return the value of a literal number; None for any other expression."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return sign * node.value
    return None


def _reads(node: ast.expr, name: ast.expr) -> bool:
    """Return True if an expression reads the value of a variable."""
    if not isinstance(name, ast.Name):
        return False
    return any(isinstance(inner, ast.Name) and inner.id == name.id for inner in ast.walk(node))
