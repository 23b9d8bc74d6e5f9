"""Fills gaps of Triton's interpreter: features that work on a GPU but not interpreted.

- Grids that are lists.
- Builtins imported by name (``from triton.language.math import rsqrt``).
- `tl.atomic_xchg` of floats, and reductions into tensor descriptors.
- Handles of compiled kernels, which `warmup` returns and which are launched with all arguments.

It does not cover ``tl.map_elementwise`` and ``tl.inline_asm_elementwise``. A CPU cannot run a GPU's
assembly, and the error says so.

Loaded by path in the untrusted process: standard library and triton only.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_LAUNCH_OPTIONS = ("num_warps", "num_ctas", "num_stages")


def fill(with_semantic: Callable[[Any, Any], Any]) -> None:
    """Fill the gaps in this process.

    Args:
        with_semantic: The function of `libdevice.py`.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    _take_lists(interpreter.GridExecutor)
    _bind_imported_names(interpreter, with_semantic)
    _exchange_floats(builder)
    _give_handles(interpreter.InterpretedFunction)
    _reduce_into_descriptors(builder)

    def inline_asm(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "tl.inline_asm_elementwise holds assembly of a GPU, which the interpreter on a CPU "
            "cannot run; write the operation in Triton's language, or judge the kernel on a GPU"
        )

    builder.create_inline_asm = inline_asm


def _take_lists(executor: Any) -> None:
    init = executor.__init__

    def made(self: Any, fn: Any, arg_names: Any, grid: Any, *args: Any, **kwargs: Any) -> None:
        if callable(grid):
            own = grid

            def grid(meta: Any) -> Any:
                return _as_tuple(own(meta))

        init(self, fn, arg_names, _as_tuple(grid), *args, **kwargs)

    executor.__init__ = made


def _give_handles(function: Any) -> None:
    run = function.run

    def ran(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return _Handle(self, kwargs)
        return run(self, *args, grid=grid, warmup=False, **kwargs)

    function.run = ran


class _Handle:
    """Stand-in for a compiled kernel: launching it interprets the kernel.

    Args:
        kernel: The interpreted kernel.
        options: Keyword arguments that it was compiled with.
    """

    n_regs, n_spills, n_max_threads = 32, 0, 1024
    module = function = 0

    def __init__(self, kernel: Any, options: dict[str, Any]) -> None:
        self.name, self._kernel = kernel.__name__, kernel
        known = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "shared": 0, **options}
        self.metadata = SimpleNamespace(**{**known, "name": self.name})
        self._options = {key: options[key] for key in _LAUNCH_OPTIONS if key in options}

    def _init_handles(self) -> None:
        pass

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            return self._kernel.run(*args, grid=grid, warmup=False, **self._options, **kwargs)

        return launch


def _as_tuple(grid: Any) -> Any:
    return tuple(grid) if isinstance(grid, list) else grid


def _bind_imported_names(interpreter: Any, with_semantic: Callable[[Any, Any], Any]) -> None:
    """Make builtins of Triton that a kernel imported by name callable in the interpreter.

    Triton patches its modules at each launch, which leaves such names as they were.
    """
    from triton.language.core import is_builtin

    rewriter = interpreter.FunctionRewriter
    compile_and_exec = rewriter._compile_and_exec

    def bound(self: Any, tree: Any) -> Any:
        names = self.fn.__globals__
        if not names.get("__name__", "").startswith("triton."):
            for name, value in list(names.items()):
                if callable(value) and is_builtin(value):
                    names[name] = with_semantic(value, interpreter.interpreter_semantic)
        return compile_and_exec(self, tree)

    rewriter._compile_and_exec = bound


def _exchange_floats(builder: Any) -> None:
    from triton._C.libtriton import ir
    from triton.language import core

    exchange, integers = builder.create_atomic_rmw, {32: core.int32, 64: core.int64}

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, *args: Any) -> Any:
        kind = val.dtype.scalar
        if op != ir.ATOMIC_OP.XCHG or not kind.is_floating():
            return exchange(self, op, ptr, val, *args)
        integer = integers[kind.primitive_bitwidth]
        bits = type(val)(val.data.view(f"i{integer.primitive_bitwidth // 8}"), integer)
        old = exchange(self, op, ptr, bits, *args)
        return type(val)(old.data.view(val.data.dtype), kind)

    builder.create_atomic_rmw = create_atomic_rmw


def _reduce_into_descriptors(builder: Any) -> None:
    from triton._C.libtriton import ir

    kinds = getattr(ir, "DESCRIPTOR_REDUCE_KIND", None)
    if kinds is None or hasattr(builder, "create_descriptor_reduce"):
        return
    names = ("ADD", "MIN", "MAX", "AND", "OR", "XOR")
    operations = {getattr(kinds, name): getattr(ir.ATOMIC_OP, name) for name in names}

    def create_descriptor_reduce(self: Any, kind: Any, desc: Any, value: Any, at: Any) -> None:
        pointers, mask = desc.materialize_pointers(at)
        element, operation = value.dtype.scalar, operations[kind]
        if element.is_floating():
            if kind != kinds.ADD:
                raise NotImplementedError(
                    "the interpreter on a CPU cannot reduce floats into a tensor descriptor by "
                    "minimum or maximum; use tl.atomic_max, or judge the kernel on a GPU"
                )
            operation = ir.ATOMIC_OP.FADD
        elif element.is_int_unsigned() and kind in (kinds.MIN, kinds.MAX):
            operation = ir.ATOMIC_OP.UMIN if kind == kinds.MIN else ir.ATOMIC_OP.UMAX
        active = type(value)(mask, _boolean())
        self.create_atomic_rmw(operation, pointers, value, active, ir.MEM_SEMANTIC.RELAXED, None)

    builder.create_descriptor_reduce = create_descriptor_reduce


def _boolean() -> Any:
    from triton.language import core

    return core.int1
