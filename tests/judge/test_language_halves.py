"""Languages' modules beside a kernel count launches, with stand-ins for the languages' packages."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kernelgym.judge.untrusted.languages import cute


class Watcher:
    """Makes launches, or leaves them out, as a tracer does."""

    def __init__(self, skips: bool = False) -> None:
        self.skips, self.seen = skips, []

    def launch(self, launch: Any, args: Any, kwargs: Any, skip: Any = None) -> Any:
        self.seen.append((launch.compiled_names, args))
        return None if self.skips else launch(*args, **kwargs)


def fake_cutlass(monkeypatch: pytest.MonkeyPatch, ran: list[Any]) -> SimpleNamespace:
    """Put modules into `sys.modules` that are built like those of CuTe DSL 4.8."""

    class Tensor:
        def __init__(self, tensor: Any, **options: Any) -> None:
            self.shape = tuple(tensor.shape)

    class JitExecutor:
        def __init__(self, module: Any) -> None:
            self.jit_module = module

        def run_compiled_program(self, exe_args: Any) -> int:
            ran.append(exe_args)
            return 0

        def __call__(self, *args: Any) -> int:
            return self.run_compiled_program([*args])

    class JitCompiledFunction:
        def __init__(self, names: tuple[str, ...]) -> None:
            self.kernel_info = dict.fromkeys(names)

        def to(self, device: Any = None) -> JitExecutor:
            return JitExecutor(SimpleNamespace())

        def __call__(self, *args: Any) -> int:
            return self.run_compiled_program([*args])

        def run_compiled_program(self, exe_args: Any) -> int:
            return self.to(None).run_compiled_program(exe_args)

    class CudaDialectJitCompiledFunction(JitCompiledFunction):
        def to(self, device: Any = None) -> JitExecutor:
            return super().to(device)

    class BaseDSL:
        def _func(self, compiled: Any, *args: Any, compile_only: bool = False) -> Any:
            return compiled if compile_only else compiled.run_compiled_program([*args])

    class TVMFFIJitCompiledFunction:
        kernel_info = ("ffi_kernel",)

        def __call__(self, *args: Any) -> None:
            ran.append([*args])

    TVMFFIJitCompiledFunctionWithKwargs = type("WithKwargs", (TVMFFIJitCompiledFunction,), {})
    modules = {
        "cutlass": {},
        "cutlass.base_dsl": {},
        "cutlass.base_dsl.dsl": {"BaseDSL": BaseDSL},
        "cutlass.base_dsl.jit_executor": {
            "JitExecutor": JitExecutor,
            "JitCompiledFunction": JitCompiledFunction,
        },
        "cutlass.cute": {},
        "cutlass.cute.runtime": {"_Tensor": Tensor},
        "cutlass.cutlass_dsl": {},
        "cutlass.cutlass_dsl.cuda_jit_executor": {
            "CudaDialectJitCompiledFunction": CudaDialectJitCompiledFunction
        },
        "cutlass.cutlass_dsl.tvm_ffi_provider": {
            "TVMFFIJitCompiledFunction": TVMFFIJitCompiledFunction,
            "TVMFFIJitCompiledFunctionWithKwargs": TVMFFIJitCompiledFunctionWithKwargs,
        },
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
        owner, _, last = name.rpartition(".")
        if owner:
            setattr(sys.modules[owner], last, module)
    return SimpleNamespace(
        Tensor=Tensor,
        compiled=CudaDialectJitCompiledFunction,
        dsl=BaseDSL,
        ffi=TVMFFIJitCompiledFunction,
    )


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def dsl(monkeypatch: pytest.MonkeyPatch, ran: list[Any]) -> SimpleNamespace:
    fake = fake_cutlass(monkeypatch, ran)
    fake.launches = SimpleNamespace(count=0, watcher=None)
    cute.count_launches(fake.launches)
    return fake


def test_cute_call_of_a_compiled_function_is_one_launch(dsl: Any, ran: list[Any]) -> None:
    x = torch.zeros(3)
    function, given = dsl.compiled(("first", "second")), dsl.Tensor(x)
    function(given)
    dsl.launches.watcher = Watcher()
    function(given)
    assert dsl.launches.count == 2 and ran == [[given], [given]]
    ((names, tensors),) = dsl.launches.watcher.seen
    assert names == ("first", "second") and len(tensors) == 1 and tensors[0] is x


def test_cute_jitted_function_called_directly_is_a_launch_and_compiling_is_none(
    dsl: Any, ran: list[Any]
) -> None:
    function = dsl.compiled(("kernel",))
    dsl.dsl()._func(function, 1, compile_only=True)
    assert dsl.launches.count == 0 and not ran
    dsl.dsl()._func(function, dsl.Tensor(torch.zeros(2)))
    assert dsl.launches.count == 1 and len(ran) == 1


def test_cute_launch_that_the_watcher_leaves_out_does_not_run(dsl: Any, ran: list[Any]) -> None:
    dsl.launches.watcher = Watcher(skips=True)
    function = dsl.compiled(("kernel",))
    assert function(dsl.Tensor(torch.zeros(2))) is None
    assert function.to(0)(dsl.Tensor(torch.zeros(2))) is None
    assert dsl.ffi()(torch.zeros(2)) is None
    assert not ran and len(dsl.launches.watcher.seen) == dsl.launches.count == 3


def test_cute_function_of_tvm_ffi_is_counted_with_its_tensors(dsl: Any, ran: list[Any]) -> None:
    x = torch.zeros(2)
    dsl.launches.watcher = Watcher()
    dsl.ffi()(x, 4)
    ((names, tensors),) = dsl.launches.watcher.seen
    assert names == ("ffi_kernel",) and tensors[0] is x and ran == [[x, 4]]


def test_cute_complaint_loses_its_colours_and_names_the_kernel_s_line() -> None:
    source = "def generate_mlir(error):\n    raise error\n"
    scope: dict[str, Any] = {}
    exec(compile(source, "/site/cutlass/base_dsl/dsl.py", "exec"), scope)
    kind = type("DSLUserCodeError", (Exception,), {"__module__": "cutlass.base_dsl.common"})
    text = (
        "\n\x1b[91m\x1b[1merror:\x1b[0m `v` has two types\n  \x1b[94m-->\x1b[0m /run/kernel.py:49\n"
    )
    with pytest.raises(kind) as raised:
        scope["generate_mlir"](kind(text))
    told = cute.describe_error(raised.value, "/run/kernel.py")
    assert told["compile"] is True and told["where"] == "line 49"
    assert told["text"].startswith("error: `v` has two types") and "\x1b" not in told["text"]
    assert cute.describe_error(ValueError("another"), "/run/kernel.py") == {}


def test_cute_error_at_a_launch_is_no_compiler_s_complaint() -> None:
    source = (
        "def generate_mlir(error):\n    run_compiled_program(error)\n"
        "def run_compiled_program(error):\n    raise error\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(source, "/site/cutlass/base_dsl/dsl.py", "exec"), scope)
    with pytest.raises(RuntimeError) as raised:
        scope["generate_mlir"](RuntimeError("illegal address"))
    assert cute.describe_error(raised.value, "kernel.py") == {}
