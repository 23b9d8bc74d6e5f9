"""CuTe DSL kernels: Triton's one-dimensional programs, written for the threads of a block.

A program becomes a block, and each element of a program's block one thread: a masked load reads
where the mask holds, a reduction combines the threads' values through shared memory, and a value of
the whole program is stored by the first thread.
"""

from __future__ import annotations

import ast
import dataclasses
import re

from kernelgym.suites.synthetic.spec import MoveStage, RowsStage, Spec, Stage
from kernelgym.suites.synthetic.style import Style, power_of_two, row_geometry
from kernelgym.suites.synthetic.triton_parts import StageText, tuple_text
from kernelgym.text_templates import filled

_LEAST, _MOST = 32, 1024
"""Smallest and largest number of threads of a block: one warp, and the limit of a GPU."""
_SAME = {"exp": "cute.math.exp", "log": "cute.math.log", "sqrt": "cute.math.sqrt",
         "sin": "cute.math.sin", "erf": "cute.math.erf",
         "maximum": "cute.arch.fmax", "minimum": "cute.arch.fmin"}  # fmt: skip
"""Functions of CuTe DSL, by the name of the Triton function that computes the same."""
_COMBINE = {"sum": "operator.add", "max": "cute.arch.fmax", "min": "cute.arch.fmin"}
_CDIV = re.compile(r"triton\.cdiv\((.+), (\d+)\)")


def thread_style(spec: Spec, stage: Stage, style: Style) -> Style:
    """Return a kernel style whose skeleton and block suit one thread an element."""
    skeleton = style.skeleton
    block = min(max(style.block, _LEAST), _MOST)
    if isinstance(stage, MoveStage):
        skeleton = "flat" if skeleton == "tile" else skeleton
    elif isinstance(stage, RowsStage) and stage.tail:
        _, length, _ = row_geometry(spec, stage)
        whole = skeleton in ("row", "tile") and length <= _MOST
        skeleton, block = ("row", max(power_of_two(length), _LEAST)) if whole else ("loop", block)
    elif skeleton == "tile":
        skeleton = "row"
    return dataclasses.replace(style, skeleton=skeleton, block=block, lanes=1)


def write_cute(text: StageText) -> list[str]:
    """Return a stage's CuTe kernel, the function that launches it, and the host function."""
    function = text.style.function
    threads = next(size for name, size in text.constants.items() if name != "REPEATS")
    translated = ast.unparse(_InThreads(text).visit(ast.parse("\n".join(text.body))))
    tensors = [f"g_{name}" for name in text.ordered]
    typed = ", ".join(
        [*(f"{name}: cute.Tensor" for name in tensors)]
        + [f"{name}: cutlass.Int32" for name in text.scalars]
    )
    (grid,) = text.grid
    blocks = _CDIV.sub(r"-(-\1 // \2)", grid)
    sent = ", ".join((tuple_text(text.ordered), *text.scalars, blocks))
    kernel = filled(
        __package__,
        "cute_stage.j2",
        function=function,
        threads=threads,
        typed=typed,
        passed=", ".join((*tensors, *text.scalars)),
        body=translated.splitlines(),
        parts=", parts" in translated,
        line=", line" in translated,
    )
    return [*kernel.splitlines(), *text.host(f"launch({function}_launch, {sent})")]


class _InThreads(ast.NodeTransformer):
    """Rewrites the body of a Triton kernel for the threads of a block."""

    def __init__(self, text: StageText) -> None:
        pointer = text.style.names.pointer
        self._tensors = {pointer.format(name): f"g_{name}" for name in text.ordered}
        self._constants = text.constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a compile-time argument's name by its value."""
        value = self._constants.get(node.id)
        return node if value is None else ast.Constant(value)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """Give a number that a loop changes the type of the kernel's values."""
        value = self.visit(node.value)
        whole = ast.unparse(node.value).startswith("float(") or (
            isinstance(value, ast.Constant) and isinstance(value.value, float)
        )
        target = node.targets[0]
        picks = isinstance(target, ast.Name) and target.id == "picked"
        text = ast.unparse(value)
        if picks:  # indices are 64 bits wide
            text = text.replace("cutlass.Float32", "cutlass.Int32")
        return ast.Assign([target], _expression(_float(value) if whole else text), lineno=0)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Make a store depend on its mask; one thread stores a value of the whole program."""
        call = node.value
        if not isinstance(call, ast.Call) or not _named(call).endswith("store"):
            return self.generic_visit(node)
        place, value = self._place(call.args[0]), ast.unparse(self.visit(call.args[1]))
        mask = self._mask(call) or "thread == 0"
        return ast.parse(f"if {mask}:\n    {place} = {value}").body[0]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace a call of one of Triton's operations by its form in CuTe DSL."""
        name = _named(node)
        if name == "float":
            return _expression(f"{'-' * ('-' in ast.unparse(node.args[0]))}cutlass.Float32.inf")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            kind = "Int32" if "int32" in ast.unparse(node.args[0]) else "Float32"
            return _expression(f"cutlass.{kind}({ast.unparse(self.visit(node.func.value))})")
        if not name.startswith("tl."):
            return self.generic_visit(node)  # type: ignore[return-value]
        operation = name.removeprefix("tl.")
        if operation == "load":
            mask, place = self._mask(node), self._place(node.args[0])
            other = next((ast.unparse(k.value) for k in node.keywords if k.arg == "other"), "0.0")
            read = f"cutlass.Float32({place})"
            return _expression(f"{read} if {mask} else cutlass.Float32({other})" if mask else read)
        given = [ast.unparse(self.visit(argument)) for argument in node.args]
        match operation:
            case "program_id":
                return _expression("block")
            case "arange":
                return _expression("thread")
            case "zeros":
                return _expression("cutlass.Float32(0.0)")
            case "full":
                return _expression(f"cutlass.Float32({given[1]})")
            case "where":
                condition, yes, no = given
                return _expression(
                    f"cutlass.Float32({yes}) if {condition} else cutlass.Float32({no})"
                )
            case "abs":
                return _expression(f"cute.arch.fmax({given[0]}, -({given[0]}))")
            case "cumsum":
                return _expression(f"running_sum({given[0]}, line)")
            case "sum" | "max" | "min":
                return _expression(f"over_block({given[0]}, parts, {_COMBINE[operation]})")
        return _expression(f"{_SAME[operation]}({', '.join(given)})")

    def _place(self, pointer: ast.expr) -> str:
        """Return the element that a sum of a pointer and an index points to."""
        text = ast.unparse(self.visit(pointer))
        name, _, index = text.partition(" + ")
        return f"{self._tensors[name]}[{index}]"

    def _mask(self, call: ast.Call) -> str:
        masks = (keyword.value for keyword in call.keywords if keyword.arg == "mask")
        return next((ast.unparse(self.visit(mask)) for mask in masks), "")


def _named(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _float(value: ast.expr) -> str:
    return f"cutlass.Float32({ast.unparse(value)})"


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
