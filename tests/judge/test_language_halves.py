"""Languages' modules beside a kernel count launches, with stand-ins for the languages' packages."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kernelgym.judge.untrusted.languages import cute, tilelang


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
            self.capsule = tensor.__dlpack__()

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


def test_cute_complaint_about_arguments_quotes_the_kernel_and_not_its_wrapper(
    tmp_path: Any,
) -> None:
    kernel, inner, scope = tmp_path / "kernel.py", dict[str, Any](), dict[str, Any]()
    kernel.write_text("def forward(call, error):\n    call(error)\n")
    exec(compile(kernel.read_text(), str(kernel), "exec"), scope)
    source = "def generate_mlir(error):\n    raise error\n"
    exec(compile(source, "/site/cutlass/base_dsl/dsl.py", "exec"), inner)
    kind = type("DSLUserCodeError", (Exception,), {"__module__": "cutlass.base_dsl.common"})
    wrapper = f"   --> {cute.__file__}:143:20\n    |\n143 |   x\n    |   ^\n"
    text = f"error: no tensor\n{wrapper}  suggestion: y"
    with pytest.raises(kind) as raised:
        scope["forward"](inner["generate_mlir"], kind(text))
    told = cute.describe_error(raised.value, str(kernel))
    wanted = "error: no tensor\n  suggestion: y\n  --> kernel.py:2\n    call(error)"
    assert told["text"] == wanted


def test_tilelang_outputs_of_what_is_compiled_only_have_their_shapes() -> None:
    def parameter(*shape: Any) -> Any:
        return SimpleNamespace(shape=shape, torch_dtype=lambda: torch.float16)

    params = [parameter(6), parameter("n", 3), parameter("n * 2", 3, 6)]
    adapter = SimpleNamespace(params=params, result_idx=[2])
    made = tilelang._outputs(adapter, (torch.ones(2, 3), torch.ones(5, 3)))
    assert made.shape == (10, 3, 6) and made.dtype == torch.float16


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


def fake_tilelang(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Put modules into `sys.modules` that are built like those of TileLang 0.1.15."""

    class BaseKernelAdapter:
        device_kernel_source = (
            'extern "C" __global__ void f_kernel(const half_t* A);\n'
            'extern "C" __global__ void __launch_bounds__(128, 1) f_kernel(const half_t* A) {}\n'
        )

        def __init__(self, function: Any, result_idx: list[int]) -> None:
            self.result_idx, self._function = result_idx, function
            self._post_init()

        def _post_init(self) -> None:
            self.func = self._function

        def __call__(self, *args: Any) -> Any:
            return self.func(*args)

    modules = {
        name: ModuleType(name)
        for name in (
            *("tilelang", "tilelang.jit", "tilelang.jit.adapter", "tilelang.jit.adapter.base"),
            *("tilelang.contrib", "tilelang.contrib.nvcc", "tilelang.contrib.cc", "tilelang.env"),
            *("tvm", "tvm.contrib", "tvm.contrib.cc"),
        )
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        owner, _, last = name.rpartition(".")
        if owner:
            setattr(modules[owner], last, module)
    modules["tilelang.jit.adapter.base"].BaseKernelAdapter = BaseKernelAdapter  # type: ignore[attr-defined]
    modules["tilelang.env"].TILELANG_TEMPLATE_PATH = "/site/tilelang/src"  # type: ignore[attr-defined]
    modules["tilelang.env"].CUTLASS_INCLUDE_DIR = "/site/cutlass/include"  # type: ignore[attr-defined]
    return SimpleNamespace(
        adapter=BaseKernelAdapter,
        nvcc=modules["tilelang.contrib.nvcc"],
        cc=modules["tvm.contrib.cc"],
    )


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    fake = fake_tilelang(monkeypatch)
    fake.launches = SimpleNamespace(count=0, watcher=None)
    tilelang.count_launches(fake.launches)
    return fake


def test_tilelang_call_of_a_kernel_is_a_launch_with_its_kernels_names(tiles: Any) -> None:
    kernel = tiles.adapter(lambda x: x + 1, [-1])
    assert kernel(torch.ones(2)).tolist() == [2, 2] and tiles.launches.count == 1
    tiles.launches.watcher = Watcher()
    x = torch.ones(2)
    assert kernel.func(x).tolist() == [2, 2] and tiles.launches.count == 2
    ((names, tensors),) = tiles.launches.watcher.seen
    assert names == ("f_kernel",) and tensors[0] is x


def test_tilelang_launch_that_is_left_out_gives_outputs_without_a_result(tiles: Any) -> None:
    class Skipping(Watcher):
        def launch(self, launch: Any, args: Any, kwargs: Any, skip: Any = None) -> Any:
            return skip()

    def adds(x: Any) -> Any:
        x += 1
        return x * 2

    tiles.launches.watcher = Skipping()
    x = torch.ones(2)
    made = tiles.adapter(adds, [-1])(x)
    assert made.shape == x.shape and made.isnan().all() and x.tolist() == [1, 1]
    kept = torch.zeros(2)

    def stores(out: Any) -> None:
        out.fill_(7)

    assert tiles.adapter(stores, [])(kept) is None and kept.tolist() == [0, 0]


def test_tilelang_compilers_become_requests(tiles: Any, tmp_path: Any) -> None:
    asked: list[dict[str, Any]] = []
    made = tmp_path / "made"
    made.write_bytes(b"code")

    def request(what: dict[str, Any]) -> dict[str, Any]:
        asked.append(what)
        if what["program"] == "host_library" and not what["sources"]:
            return {"failed": "error: no", "fds": []}
        return {"module": "tilelang", "fds": [os.open(made, os.O_RDONLY)]}

    assert tilelang.begin(request, "")() == 0
    options = ["-std=c++20", "-I/site/tilelang/src", "-I/site/cutlass/include", "-w"]
    code = tiles.nvcc.compile_cuda("text", "cubin", ["-arch=sm_90a"], options=options)
    assert code == b"code"
    source = tmp_path / "lib0.c"
    source.write_text("int f();")
    tiles.cc.create_shared(str(tmp_path / "out.so"), [str(source)], options=["-I/x"])
    assert (tmp_path / "out.so").read_bytes() == b"code"
    flags = ["-arch=sm_90a", "-std=c++20", "-w"]
    assert asked == [
        {"program": "device_code", "source": "text", "format": "cubin", "options": flags},
        {"program": "host_library", "sources": ["int f();"]},
    ]
    with pytest.raises(tilelang.TileLangBuildFailed, match="error: no"):
        tiles.cc.create_shared(str(tmp_path / "other.so"), [])


def test_tilelang_error_quotes_the_kernel_s_line(tmp_path: Any) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def main(parse):\n    parse()\n")
    scope: dict[str, Any] = {}
    exec(compile(kernel.read_text(), str(kernel), "exec"), scope)
    inner: dict[str, Any] = {}
    source = "def compile():\n    raise ValueError('Buffer x is 1-dimensional')\n"
    exec(compile(source, "/site/tilelang/jit/__init__.py", "exec"), inner)
    with pytest.raises(ValueError) as raised:
        scope["main"](inner["compile"])
    told = tilelang.describe_error(raised.value, str(kernel))
    assert told["compile"] is True and told["text"].endswith("--> kernel.py:2\n    parse()")
    assert tilelang.describe_error(ValueError("of torch"), str(kernel)) == {}
    source = "def func():\n    __call__()\ndef __call__():\n    raise ValueError('shape[0]')\n"
    exec(compile(source, "/site/tilelang/jit/adapter/tvm_ffi.py", "exec"), inner)
    with pytest.raises(ValueError) as raised:
        scope["main"](inner["func"])
    assert tilelang.describe_error(raised.value, str(kernel)) == {}  # of a launch's arguments
