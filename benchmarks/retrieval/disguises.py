"""A reference in disguise: the same problem, written so that it is not known again by its text.

Contract: pure text; each disguise takes a reference and a seed, and gives a module that computes
the same (`resized`: at other sizes), or an empty text where it finds nothing to change.

- ``renamed``: other names, another style of imports, no docstrings;
- ``respelled``: the same operators, called otherwise (``torch.sum(x)``, ``x.sum()``, ``a @ b``);
- ``resized``: renamed, with other numbers;
- ``wrapped``: the module stands in another one, which calls it;
- ``re-exported``: operators go by names that the module gives them first, as a library's do;
- ``rewritten``: other operators that compute the same, such as a softmax by ``exp`` and ``sum``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from benchmarks.retrieval.renaming import renamed, without_docstrings

__all__ = ["DISGUISES"]

_METHODS = (
    "abs argmax argmin cumprod cumsum exp log matmul max mean min prod relu sigmoid softmax "
    "log_softmax sqrt sum tanh tril triu var std clamp norm permute transpose flip"
).split()
_INFIX = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul",
    ast.Pow: "pow",
}  # fmt: skip
_FORMULAS = {
    "relu": "torch.clamp({0}, min=0.0)",
    "sigmoid": "(1.0 / (1.0 + torch.exp(-({0}))))",
    "tanh": "(2.0 * torch.sigmoid(2.0 * {0}) - 1.0)",
    "softmax": "(torch.exp({0}) / torch.exp({0}).sum(dim={1}, keepdim=True))",
    "log_softmax": "({0} - torch.logsumexp({0}, dim={1}, keepdim=True))",
    "matmul": "torch.einsum('...ij,...jk->...ik', {0}, {1})",
    "mean": "(torch.sum({0}, dim={1}, keepdim={keep}) / ({0}).shape[{1}])",
    "sum": "(torch.mean({0}, dim={1}, keepdim={keep}) * ({0}).shape[{1}])",
    "argmax": "torch.topk({0}, 1, dim={1})[1].squeeze({1})",
    "cumsum": "torch.flip(torch.flip({0}, [{1}]), [{1}]).cumsum({1})",
}
"""Other operators for one; the first argument, and the second or the axis."""


def _respelled(source: str, seed: int) -> str:
    return _changed(source, _Respelled())


def _rewritten(source: str, seed: int) -> str:
    return _changed(source, _Rewritten())


def _resized(source: str, seed: int) -> str:
    return renamed(source, seed, sizes=True)


def _wrapped(source: str, seed: int) -> str:
    tree = ast.parse(without_docstrings(source))
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    if model is None:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "Inner"
    model.name = "Inner"
    outer = (
        "class Model(nn.Module):\n"
        "    def __init__(self, *args):\n"
        "        super().__init__()\n"
        "        self.inner = Inner(*args)\n"
        "    def forward(self, *args):\n"
        "        return self.inner(*args)\n"
    )
    tree.body += ast.parse(outer).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _reexported(source: str, seed: int) -> str:
    """Return a module that names each function of torch before it calls it."""
    tree = ast.parse(without_docstrings(source))
    namer = _Named()
    body: list[ast.stmt] = [namer.visit(node) for node in tree.body]
    if not namer.names:
        return ""
    first = next(i for i, n in enumerate(body) if not isinstance(n, ast.Import | ast.ImportFrom))
    given = [f"{name} = {function}\n" for function, name in namer.names.items()]
    tree.body = [*body[:first], *ast.parse("".join(given)).body, *body[first:]]
    return ast.unparse(ast.fix_missing_locations(tree))


DISGUISES: dict[str, Callable[[str, int], str]] = {
    "renamed": renamed,
    "respelled": _respelled,
    "resized": _resized,
    "wrapped": _wrapped,
    "re-exported": _reexported,
    "rewritten": _rewritten,
}


def _changed(source: str, writer: ast.NodeTransformer) -> str:
    plain = without_docstrings(source)
    tree = ast.parse(plain)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            writer.visit(node)
    text = ast.unparse(ast.fix_missing_locations(tree))
    return "" if text == plain else text


def _called(node: ast.Call) -> str:
    """Return the function of torch that is called; empty for another."""
    name = ast.unparse(node.func)
    known = any(name == f"{module}.{name.rpartition('.')[2]}" for module in ("torch", "F"))
    functional = name.startswith(("nn.functional.", "torch.nn.functional."))
    return name.rpartition(".")[2] if known or functional else ""


class _Respelled(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = _called(node)
        if name == "matmul" and len(node.args) == 2:
            return ast.BinOp(node.args[0], ast.MatMult(), node.args[1])
        if name in _METHODS and node.args:
            function = ast.Attribute(node.args[0], name, ast.Load())
            return ast.Call(function, node.args[1:], node.keywords)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = _INFIX.get(type(node.op))
        # A function of torch takes no two numbers, such as a length and 1.
        sizes = any(word in ast.unparse(node) for word in (".size(", ".shape"))
        if name is None or sizes or isinstance(node.left, ast.Constant):
            return node
        function = ast.parse(f"torch.{name}", mode="eval").body
        return ast.Call(function, [node.left, node.right], [])


class _Rewritten(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        formula = _FORMULAS.get(_called(node), "")
        axis = [each.value for each in node.keywords if each.arg == "dim"]
        given = [ast.unparse(each) for each in (*node.args, *axis)]
        if not formula or len(given) < 1 + ("{1}" in formula):
            return node
        keep = [ast.unparse(each.value) for each in node.keywords if each.arg == "keepdim"]
        return ast.parse(formula.format(*given, keep=(*keep, "False")[0]), mode="eval").body


class _Named(ast.NodeTransformer):
    """Calls functions of torch by names of the module's own."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node if node.name in ("get_inputs", "get_init_inputs") else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = ast.unparse(node.func)
        module = isinstance(node.func, ast.Attribute) and called.startswith(("nn.", "F."))
        if _called(node) or module:
            name = self.names.setdefault(called, f"op_{len(self.names)}")
            node.func = ast.Name(name, ast.Load())
        return node
