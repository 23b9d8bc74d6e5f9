"""`TritonModule`: a Python module with its Triton functions and their launches.

Contract: the module is parsed by libcst and never run. Changes are texts in place of nodes, so that
comments and layout stay as they were. What cannot be read (a function called through another name,
arguments given by ``*`` or ``**``) is left out of `launches`, and nothing is changed there. Pure.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from kernelgym import UsageError
from kernelgym.answers.python_source import UnreadableSource, read_python

_SIGNS = {
    *("lpar", "rpar", "comma", "semicolon", "indent", "header", "footer", "leading_lines"),
    *("lines_after_decorators", "equal", "dot", "lbracket", "rbracket", "lbrace", "rbrace"),
}
_OWNERS = frozenset({"tl", "triton", "triton.language"})
_MOST_DEPTH = 200  # levels; at some thousand libcst overflows the stack, which ends the process
_MOST_BYTES = 100_000  # libcst took 6 to 11 s for as many, 40 s for 300 kB
_DEEP = "the kernel's module is nested too deeply to be read"
_TARGETS = (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr)
Edit = tuple[cst.CSTNode, str]
"""A change of a module's text: (node, text that replaces it)."""


@dataclass(frozen=True, eq=False)
class JitFunction:
    """A function that Triton compiles."""

    name: str
    node: cst.FunctionDef
    parameters: tuple[str, ...]
    constants: tuple[str, ...]
    """Parameters annotated with ``tl.constexpr``."""
    configs: tuple[cst.Call, ...] = ()
    """Calls of ``triton.Config`` in the decorators, or in a list whose name they read."""
    tuned: bool = False
    """Whether a decorator besides ``triton.jit`` may set parameters."""
    configured: bool = False
    """Whether a decorator besides ``triton.heuristics`` may set launch options."""
    defaults: Mapping[str, cst.BaseExpression] = field(default_factory=dict)
    """Default values of parameters, by name."""

    @property
    def body(self) -> Sequence[cst.BaseStatement]:
        """Statements of the function."""
        body = self.node.body
        return body.body if isinstance(body, cst.IndentedBlock) else ()


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """A call such as ``kernel[grid](x, y, BLOCK=128)``."""

    function: str
    call: cst.Call
    grid: cst.BaseExpression
    given: Mapping[str, cst.Arg]
    """Arguments of the launch by parameter, and its options such as ``num_warps``."""


class TritonModule:
    """A Python module with Triton functions.

    Args:
        source: Text of the module.

    Raises:
        UsageError: If the text is not Python, or too large or nested too deeply to be read.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        if len(source.encode("utf-8", "replace")) > _MOST_BYTES:
            raise UsageError(
                f"the kernel's module is larger than {_MOST_BYTES:,} bytes, the most that is read"
            )
        if isinstance(plain := read_python(source), UnreadableSource):
            raise UsageError(f"the kernel is not a Python module: {plain.message}")
        if _is_deep(plain):
            raise UsageError(_DEEP)
        try:
            wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
            self.tree = wrapper.module
            self._spans = wrapper.resolve(ByteSpanPositionProvider)
            self._bytes = source.encode()
            self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
            for node in walk(self.tree):
                self._parents.update(dict.fromkeys(_inside(node), node))
            self._scopes = self._assigned()
        except cst.ParserSyntaxError as error:
            told = f"line {error.raw_line}: {error.message}"
            raise UsageError(f"the kernel is not a Python module: {told}") from None
        except RecursionError:
            raise UsageError(_DEEP) from None
        self.functions: Mapping[str, JitFunction] = {each.name: each for each in self._functions()}
        self.launches = tuple(self._launches())

    def text(self, node: cst.CSTNode) -> str:
        """Return a node's text."""
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def plain(self, node: cst.CSTNode) -> str:
        """Return a node's text without white space."""
        return "".join(self.text(node).split())

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the first byte of a node, and the byte after it."""
        span = self._spans[node]
        return span.start, span.start + span.length

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the parent of a syntax node."""
        return self._parents[node]

    def around(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the ancestors of a syntax node, the parent first."""
        while node is not self.tree:
            node = self._parents[node]
            yield node

    def column(self, node: cst.CSTNode) -> int:
        """Return the number of bytes before a node in its line."""
        start = self.span(node)[0]
        return start - (self._bytes.rfind(b"\n", 0, start) + 1)

    def indentation(self, statement: cst.CSTNode) -> str:
        """Return the white space at the start of a statement's line."""
        start = self.span(statement)[0]
        line = self._bytes[start - self.column(statement) : start].decode()
        return line[: len(line) - len(line.lstrip())]

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the module's text with other texts in place of disjoint nodes."""
        return self.spliced((self.span(node), text) for node, text in edits)

    def spliced(
        self,
        edits: Iterable[tuple[tuple[int, int], str]],
        within: tuple[int, int] | None = None,
    ) -> str:
        """Return the module's text with other texts in place of disjoint spans of bytes.

        Texts that are inserted at one place follow each other in the order given.

        Args:
            edits: Spans of bytes, and the text in place of each.
            within: Span of bytes to return, which holds all edits; None for the whole module.
        """
        first, last = within or (0, len(self._bytes))
        data = self._bytes[first:last]
        for (start, end), text in reversed(sorted(edits, key=lambda edit: edit[0])):
            data = data[: start - first] + text.encode() + data[end - first :]
        return data.decode()

    def head(self, function: JitFunction) -> int:
        """Return the first byte of a function's lines, with its decorators."""
        lines = (function.node, *function.node.decorators)
        return min(self.line_span(each)[0] for each in lines)

    def line_span(self, statement: cst.CSTNode) -> tuple[int, int]:
        """Return the span of a statement with the indentation before it and its end of line."""
        start, end = self.span(statement)
        start -= self.column(statement)
        newline = self._bytes.find(b"\n", end)
        return start, len(self._bytes) if newline < 0 else newline + 1

    def block_span(self, statement: cst.CSTNode) -> tuple[int, int]:
        """Return the span of the lines of a statement, with its block if it has one."""
        start, end = self.line_span(statement)
        last = max(walk(statement), key=lambda node: self._end(node))
        return start, max(end, self.line_span(last)[1])

    def _end(self, node: cst.CSTNode) -> int:
        # Blocks end after their last line, and would bring one line more.
        if node not in self._spans or isinstance(
            node, cst.IndentedBlock | cst.BaseCompoundStatement
        ):
            return 0
        return self.span(node)[1]

    def names(self, node: cst.CSTNode) -> set[str]:
        """Return the names in a node, except names of attributes."""
        found = set()
        for each in found_in(node, cst.Name):
            parent = self._parents[each]
            if isinstance(parent, cst.Attribute) and parent.attr is each:
                continue
            if isinstance(parent, cst.Arg) and parent.keyword is each:
                continue
            found.add(each.value)
        return found

    def _functions(self) -> Iterator[JitFunction]:
        for node in self.tree.body:
            if not isinstance(node, cst.FunctionDef):
                continue
            decorators = [get_full_name_for_node(each) or "" for each in node.decorators]
            if not any(name.rpartition(".")[2] == "jit" for name in decorators):
                continue
            parameters = [*node.params.posonly_params, *node.params.params]
            parameters += [*node.params.kwonly_params]
            constants = tuple(
                each.name.value
                for each in parameters
                if each.annotation is not None
                and (get_full_name_for_node(each.annotation.annotation) or "").endswith("constexpr")
            )
            others = [
                (each, name.rpartition(".")[2])
                for each, name in zip(node.decorators, decorators, strict=True)
                if name.rpartition(".")[2] != "jit"
            ]
            texts: list[cst.CSTNode] = []
            for each, _ in others:
                lists = (self.bound(name, node) for name in sorted(self.names(each)))
                texts += [each, *(found for found in lists if found is not None)]
            configs = [
                call
                for text in dict.fromkeys(texts)
                for call in found_in(text, cst.Call)
                if is_call(call, "Config")
            ]
            yield JitFunction(
                node.name.value,
                node,
                tuple(each.name.value for each in parameters),
                constants,
                tuple(configs),
                bool(others),
                any(name != "heuristics" for _, name in others),
                {each.name.value: each.default for each in parameters if each.default is not None},
            )

    def bound(self, name: str, at: cst.CSTNode) -> cst.BaseExpression | None:
        """Return the value of a name that is assigned once in its scope; None for other names.

        Args:
            name: The name.
            at: Node that reads the name.
        """
        scope = next((each for each in self.around(at) if isinstance(each, cst.FunctionDef)), None)
        for scope_node in dict.fromkeys((scope, None)):
            found = self._scopes.get(scope_node, {}).get(name)
            if found is not None:
                return found[0] if len(found) == 1 else None
        return None

    def _assigned(self) -> dict[cst.CSTNode | None, dict[str, list[cst.BaseExpression | None]]]:
        """Return the values assigned to names, by scope; None where no plain value is assigned."""
        found: dict[cst.CSTNode | None, dict[str, list[cst.BaseExpression | None]]] = {}

        def visit(node: cst.CSTNode, scope: cst.CSTNode | None) -> None:
            names = found.setdefault(scope, {})
            if isinstance(node, cst.FunctionDef):
                scope = node
                found.setdefault(scope, {})
            elif isinstance(node, cst.Assign) and len(node.targets) == 1:
                target = node.targets[0].target
                if isinstance(target, cst.Name):
                    names.setdefault(target.value, []).append(node.value)
                    visit(node.value, scope)
                    return
            elif isinstance(node, cst.Param):
                names.setdefault(node.name.value, []).append(None)
            if isinstance(node, _TARGETS):
                for name in found_in(node.target, cst.Name):
                    names.setdefault(name.value, []).append(None)
            for each in _inside(node):
                visit(each, scope)

        visit(self.tree, None)
        return found

    def _launches(self) -> Iterator[KernelLaunch]:
        for call in found_in(self.tree, cst.Call):
            if not isinstance(call.func, cst.Subscript):
                continue
            if not isinstance(call.func.value, cst.Name):
                continue
            function = self.functions.get(call.func.value.value)
            grid = _grid_of(call.func)
            if function is None or grid is None or any(arg.star for arg in call.args):
                continue
            given: dict[str, cst.Arg] = {}
            for place, arg in enumerate(call.args):
                if arg.keyword is not None:
                    given[arg.keyword.value] = arg
                elif place < len(function.parameters):
                    given[function.parameters[place]] = arg
            yield KernelLaunch(function.name, call, grid, given)


def _is_deep(tree: ast.Module) -> bool:
    """Return True if a module is nested more deeply than libcst reads in little time."""
    level: list[ast.AST] = [tree]
    for _ in range(_MOST_DEPTH):
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        # libcst nests each operand of `a or b or c` in the one before.
        if any(isinstance(each, ast.BoolOp) and len(each.values) > _MOST_DEPTH for each in level):
            return True
    return bool(level)


@functools.lru_cache(maxsize=512)
def read_module(source: str) -> TritonModule:
    """Return the parts of a module with Triton kernels; the same object for the same text.

    Raises:
        UsageError: If the text is not Python.
    """
    return TritonModule(source)


Node = TypeVar("Node", bound=cst.CSTNode)


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a Python node and all nodes in it, in the order of the text; no spaces or commas."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += reversed(_inside(node))


def found_in(node: cst.CSTNode, kind: type[Node]) -> list[Node]:
    """Return the nodes of one type in a Python node, itself included, in the order of the text."""
    return [each for each in walk(node) if isinstance(each, kind)]


def calls_in(node: cst.CSTNode, *names: str) -> list[cst.Call]:
    """Return the calls of ``tl.NAME`` or ``triton.NAME`` in a node, in the order of the text."""
    return [each for each in found_in(node, cst.Call) if any(is_call(each, n) for n in names)]


def is_call(node: cst.CSTNode, name: str) -> bool:
    """Return True if a node calls ``tl.NAME`` or ``triton.NAME``."""
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)):
        return False
    return node.func.attr.value == name and get_full_name_for_node(node.func.value) in _OWNERS


def integer(node: cst.CSTNode | None) -> int | None:
    """Return the value of a Python literal of a whole number; None for anything else."""
    if isinstance(node, cst.Integer):
        return int(node.value, 0)
    return None


@functools.cache
def _parts(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """Return a node type's fields that hold nodes other than white space and signs."""
    return tuple(
        each.name
        for each in dataclasses.fields(kind)
        if "whitespace" not in each.name and each.name not in _SIGNS
    )


def _inside(node: cst.CSTNode) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    for name in _parts(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [each for each in value if isinstance(each, cst.CSTNode)]
    return found


def _grid_of(subscript: cst.Subscript) -> cst.BaseExpression | None:
    if len(subscript.slice) != 1:
        return None
    index = subscript.slice[0].slice
    return index.value if isinstance(index, cst.Index) else None


def programs_of(module: TritonModule, launch: KernelLaunch) -> str | None:
    """Return the number of programs of a Triton grid of one axis; None if unknown."""
    grid: cst.BaseExpression | None = launch.grid
    if isinstance(grid, cst.Name):
        grid = module.bound(grid.value, launch.call)
    if isinstance(grid, cst.Lambda):
        meta, grid = grid.params.params, grid.body
        if len(meta) != 1:
            return None
        text = _of_tuple(module, grid)
        for key in re.findall(rf"\b{meta[0].name.value}\[[\"'](\w+)[\"']\]", text or ""):
            value = launch.given.get(key)
            if value is None or text is None:
                return None
            number = module.text(value.value)
            if not isinstance(value.value, cst.Integer | cst.Name):
                number = f"({number})"
            text = re.sub(rf"\b{meta[0].name.value}\[[\"']{key}[\"']\]", number, text)
        return text
    return None if grid is None else _of_tuple(module, grid)


def _of_tuple(module: TritonModule, grid: cst.BaseExpression) -> str | None:
    if isinstance(grid, cst.Tuple) and len(grid.elements) == 1:
        return module.text(grid.elements[0].value)
    return None
