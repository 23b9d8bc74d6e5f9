"""`CudaText`: the kernels, launches and constants of a CUDA text.

Contract: the text is parsed by tree-sitter and never compiled here. A kernel is a ``__global__``
function with a body; a launch names it before ``<<<``, and its grid and block are followed to the
``dim3`` or the number that they were declared as. What is not understood is left out: a launch with
no dimensions has none that a move can change. Pure.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from kernelgym_train.mcgs.cpp.syntax import children, declared_name, plain_text, text_of, walk

_GLOBAL = re.compile(r"\b__global__\b")
_INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")


@dataclass(frozen=True, slots=True)
class CudaParameter:
    """A parameter of a kernel."""

    name: str
    element: str
    """Type of a pointer's elements, such as ``float``; of a number, its type."""
    is_pointer: bool
    node: Node


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A ``__global__`` function."""

    name: str
    node: Node
    body: Node
    parameters: tuple[CudaParameter, ...]

    @property
    def pointers(self) -> dict[str, CudaParameter]:
        """Parameters that are pointers, by name."""
        return {each.name: each for each in self.parameters if each.is_pointer}


@dataclass(frozen=True, eq=False)
class CudaLaunch:
    """A call ``kernel<<<grid, block, shared, stream>>>(arguments)``."""

    kernel: str
    node: Node
    configuration: tuple[Node, ...]
    """Expressions between ``<<<`` and ``>>>``."""
    grid: tuple[Node, ...]
    """Numbers of blocks along x, y and z, as far as they are written; empty if not understood."""
    block: tuple[Node, ...]
    """Numbers of threads along x, y and z; empty if not understood."""
    arguments: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class CudaConstant:
    """A whole number that the text names once."""

    name: str
    value: int
    node: Node
    """Literal, or the text after ``#define NAME``."""


class CudaText:
    """The kernels, launches and constants of a CUDA text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = Parser(Language(tree_sitter_cuda.language())).parse(text.encode()).root_node
        nodes = list(walk(self.root))
        found = [_kernel(node) for node in nodes if node.type == "function_definition"]
        named = Counter(each.name for each in found if each is not None)
        self.kernels: Mapping[str, CudaKernel] = {
            each.name: each for each in found if each is not None and named[each.name] == 1
        }
        self.constants: Mapping[str, CudaConstant] = _constants(nodes)
        launches = [_launch(node) for node in nodes if node.type == "call_expression"]
        self.launches: tuple[CudaLaunch, ...] = tuple(
            each for each in launches if each is not None and each.kernel in self.kernels
        )

    def only_launch(self, kernel: str) -> CudaLaunch | None:
        """Return the launch of a kernel; None if there is none, or more than one."""
        found = [each for each in self.launches if each.kernel == kernel]
        return found[0] if len(found) == 1 else None

    def value(self, node: Node) -> int | None:
        """Return a whole number that an expression names or is; None if it is neither."""
        text = plain_text(node)
        if text.isdecimal():
            return int(text)
        named = self.constants.get(text)
        return None if named is None else named.value


@functools.lru_cache(maxsize=512)
def read_cuda(text: str) -> CudaText:
    """Return the parts of a CUDA text; the same object for the same text."""
    return CudaText(text)


def index_axis(node: Node) -> tuple[str, str] | None:
    """Return ``("threadIdx", "x")`` for ``threadIdx.x``; None for other expressions."""
    if node.type != "field_expression":
        return None
    owner, _, axis = plain_text(node).partition(".")
    return (owner, axis) if owner in _INDICES else None


def global_indices(kernel: CudaKernel, constants: Mapping[str, CudaConstant]) -> dict[str, str]:
    """Return the axis by name of each ``int i = blockIdx.x * blockDim.x + threadIdx.x;``.

    Only names count that the kernel declares once and never changes. A constant may stand in place
    of ``blockDim``.
    """
    found = {}
    for statement in children(kernel.body):
        if statement.type != "declaration":
            continue
        for part in statement.children_by_field_name("declarator"):
            value = part.child_by_field_name("value")
            name = text_of(declared_name(part))
            if part.type == "init_declarator" and value is not None:
                axis = _axis_of(value, constants)
                if axis and not is_changed(kernel.body, name):
                    found[name] = axis
    return found


def _axis_of(value: Node, constants: Mapping[str, CudaConstant]) -> str:
    text = re.sub(r"\((?:int|int64_t|size_t|unsigned|longlong|long)\)", "", plain_text(value))
    text = re.sub(r"static_cast<\w+>\((\w+\.\w)\)", r"\1", text)
    for axis in "xyz":
        block = f"blockDim.{axis}"
        for size in (block, *constants):
            thread, number = f"threadIdx.{axis}", f"blockIdx.{axis}"
            products = (f"{number}*{size}", f"{size}*{number}")
            if text in {f"{p}+{thread}" for p in products} | {f"{thread}+{p}" for p in products}:
                return axis
    return ""


def is_changed(node: Node, name: str) -> bool:
    """Return True if CUDA code assigns to a name, counts it, or declares it more than once."""
    declared = 0
    for each in walk(node):
        target = None
        if each.type in ("assignment_expression", "update_expression"):
            target = each.child_by_field_name("left") or each.child_by_field_name("argument")
        elif each.type in ("init_declarator", "declaration"):
            parts = [each] if each.type == "init_declarator" else []
            parts += [
                part
                for part in each.children_by_field_name("declarator")
                if each.type == "declaration" and part.type == "identifier"
            ]
            declared += sum(text_of(declared_name(part)) == name for part in parts)
        elif each.type == "pointer_expression" and text_of(each).startswith("&"):
            target = each.child_by_field_name("argument")
        if target is not None and text_of(target) == name:
            return True
    return declared > 1


def statements_of(node: Node) -> list[Node]:
    """Return the statements of a block; a list of one for any other statement."""
    return children(node) if node.type == "compound_statement" else [node]


def _kernel(node: Node) -> CudaKernel | None:
    declarator, body = (node.child_by_field_name(name) for name in ("declarator", "body"))
    if declarator is None or body is None or body.type != "compound_statement":
        return None
    head = text_of(node)[: body.start_byte - node.start_byte]
    if not _GLOBAL.search(head):
        return None
    while declarator.type not in ("function_declarator", "ERROR"):
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            return None
        declarator = inner
    name, listed = (declarator.child_by_field_name(each) for each in ("declarator", "parameters"))
    if name is None or listed is None or name.type != "identifier":
        return None
    parameters = [_parameter(each) for each in children(listed)]
    known = tuple(each for each in parameters if each is not None)
    return CudaKernel(text_of(name), node, body, known) if len(known) == len(parameters) else None


def _parameter(node: Node) -> CudaParameter | None:
    kind, declarator = (node.child_by_field_name(name) for name in ("type", "declarator"))
    name = declared_name(declarator)
    if node.type != "parameter_declaration" or kind is None or declarator is None or name is None:
        return None
    pointer = declarator.type == "pointer_declarator"
    if pointer and text_of(declarator).count("*") > 1:
        return None
    return CudaParameter(text_of(name), text_of(kind), pointer, node)


def _constants(nodes: Sequence[Node]) -> dict[str, CudaConstant]:
    found: list[CudaConstant] = []
    named: Counter[str] = Counter()
    for node in nodes:
        if node.type == "preproc_def":
            name, value = (node.child_by_field_name(each) for each in ("name", "value"))
            named[text_of(name)] += 1
            if value is not None and (text := text_of(value).strip()).isdecimal():
                found.append(CudaConstant(text_of(name), int(text), value))
        elif node.type == "declaration":
            words = {text_of(each) for each in node.children if each.type == "type_qualifier"}
            for part in node.children_by_field_name("declarator"):
                name, value = declared_name(part), part.child_by_field_name("value")
                named[text_of(name)] += 1
                if value is None or not words & {"const", "constexpr"}:
                    continue
                if value.type == "number_literal" and text_of(value).isdecimal():
                    found.append(CudaConstant(text_of(name), int(text_of(value)), value))
        elif node.type == "parameter_declaration":
            named[text_of(declared_name(node.child_by_field_name("declarator")))] += 1
    return {each.name: each for each in found if named[each.name] == 1}


def _launch(node: Node) -> CudaLaunch | None:
    called, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    signs = next((each for each in node.children if each.type == "kernel_call_syntax"), None)
    if called is None or signs is None or given is None:
        return None
    configuration = children(signs)
    if len(configuration) < 2:
        return None
    kernel = text_of(called.child_by_field_name("name") or called)
    grid, block = (_dimensions(each, node) for each in configuration[:2])
    return CudaLaunch(kernel, node, tuple(configuration), grid, block, tuple(children(given)))


def _dimensions(node: Node, at: Node) -> tuple[Node, ...]:
    """Return the numbers along x, y and z that an expression of a CUDA launch stands for."""
    if node.type == "call_expression":
        if text_of(node.child_by_field_name("function")) != "dim3":
            return (node,)
        return tuple(children(node.child_by_field_name("arguments") or node))
    if node.type != "identifier":
        return () if node.type == "initializer_list" else (node,)
    function = at
    while function.parent is not None and function.type != "function_definition":
        function = function.parent
    name = text_of(node)
    found = [
        (statement, part)
        for statement in walk(function)
        if statement.type == "declaration"
        for part in statement.children_by_field_name("declarator")
        if text_of(declared_name(part)) == name
    ]
    if len(found) != 1 or is_changed(function, name):
        return () if found else (node,)
    statement, part = found[0]
    is_dim3 = text_of(statement.child_by_field_name("type")) == "dim3"
    if part.type == "function_declarator":  # `dim3 block(TILE, TILE);` reads like a function
        inside = part.child_by_field_name("parameters")
        return tuple(children(inside)) if is_dim3 and inside is not None else ()
    value = part.child_by_field_name("value")
    if value is None:
        return ()
    if is_dim3:
        if value.type in ("argument_list", "initializer_list"):
            return tuple(children(value))
        return _dimensions(value, at) if value.type == "call_expression" else (value,)
    return (value,) if value.type == "number_literal" else (node,)
