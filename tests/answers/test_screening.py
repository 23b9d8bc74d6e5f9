from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.answers.screening import screen
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS
from kernelgym.types import Finding, Kernel, Severity
from support.strategies import kernels

STRICT, BENCH = RULESETS["strict"], RULESETS["kernelbench"]

HEAD = """\
import functools
import os
import sys
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(1,)](x, y, x.numel(), BLOCK=128)
        {forward}
        return y
"""


def triton(forward: str = "pass", init: str = "pass", top: str = "") -> Kernel:
    indented = forward.replace("\n", "\n        ")
    return Kernel(HEAD + top + MODEL.format(init=init, forward=indented), "triton")


def codes(kernel: Kernel) -> set[str]:
    return {finding.code for finding in screen(kernel, STRICT)}


@given(kernels, st.sampled_from(sorted(RULESETS)))
def test_screening_never_raises(kernel: Kernel, name: str) -> None:
    for finding in screen(kernel, RULESETS[name]):
        assert isinstance(finding, Finding)
        hard = finding.code in RULESETS[name].hard_findings
        assert (finding.severity is Severity.HARD) == hard


@pytest.mark.parametrize("language", sorted(SAMPLE_KERNELS))
def test_honest_kernels_have_no_findings(language: str) -> None:
    assert screen(SAMPLE_KERNELS[language], STRICT) == ()
    assert screen(SAMPLE_BROKEN[language], STRICT) == ()
    for example in LANGUAGES[language].examples:
        assert screen(Kernel(example.kernel, language), STRICT) == ()


@pytest.mark.parametrize(
    "kernel",
    [
        triton('"""The forward pass: try F.relu, except that torch.matmul(x) is not used."""'),
        triton("# second pass: try: ... except: return torch.relu(x)"),
        triton("all_rows_except_the_last = 1\nbypass = all_rows_except_the_last"),
        triton(init="self.weight = nn.Parameter(torch.randn(3, 3))"),
        triton(init="self.items = nn.ModuleList()"),
        triton(init="nn.init.kaiming_uniform_(torch.empty(3, 3))"),
        triton("y = y.view(-1).reshape(x.shape).permute(0, 1).contiguous()"),
        triton("assert x.dtype == torch.float16 or x.dtype == torch.float32"),
        triton("stream = torch.cuda.current_stream()"),
        triton("aligned = x.data_ptr() % 16 == 0"),
        triton("table = {'a': 1}\ntable.get('a')"),
        triton(
            top="@functools.lru_cache\ndef block_size():\n    return 128\n", forward="block_size()"
        ),
        triton(
            top="class Op(torch.autograd.Function):\n    @staticmethod\n"
            "    def forward(ctx, x):\n        return x\n    @staticmethod\n"
            "    def backward(ctx, g):\n        return torch.relu(g)\n",
            forward="y = Op.apply(y)",
        ),
        triton(top="os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\n"),
        triton(top="def unused(x):\n    return torch.relu(x)\n"),
        triton(init="self.scale = torch.sqrt(torch.tensor(4.0)).item()"),
        triton("torch.empty(3, device=x.device, dtype=x.dtype)"),
        Kernel(
            "import triton\ndef make():\n    @triton.jit\n    def k(x):\n        pass\n"
            "    return k\nK = make()\n"
            "class ModelNew:\n    def forward(self, x):\n        K[(1,)](x)\n",
            "triton",
        ),
        Kernel(
            "import triton\nclass ModelNew:\n    @staticmethod\n    @triton.jit\n    def k(x):\n"
            "        pass\n    def forward(self, x):\n        self.k[(1,)](x)\n",
            "triton",
        ),
    ],
)
def test_what_an_honest_kernel_may_do(kernel: Kernel) -> None:
    assert screen(kernel, STRICT) == ()


@pytest.mark.parametrize(
    ("code", "kernel"),
    [
        ("torch_compute_call", triton("return torch.relu(x)")),
        ("torch_compute_call", triton("return F.gelu(x)")),
        ("torch_compute_call", triton("return x @ x")),
        ("torch_compute_call", triton("return x.matmul(x)")),
        ("torch_compute_call", triton("return torch.linalg.norm(x)")),
        ("torch_compute_call", triton("return torch.ops.aten.mm(x, x)")),
        ("torch_compute_call", triton("return nn.Linear(3, 3)(x)")),
        ("torch_compute_call", triton("y = self.fc(y)", init="self.fc = nn.Linear(3, 3)")),
        (
            "torch_compute_call",
            triton("y = helper(y)", top="def helper(x):\n    return torch.softmax(x, 0)\n"),
        ),
        ("torch_compute_call", triton("y = self.f(y)\n\ndef f(self, x):\n    return x.sum()")),
        (
            "torch_compute_call",
            Kernel(
                SAMPLE_KERNELS["cpp"].source.replace("torch::empty_like(input)", "at::relu(input)"),
                "cpp",
            ),
        ),
        ("try_except_fallback", triton("try:\n    y = y\nexcept Exception:\n    return x")),
        (
            "try_except_fallback",
            triton(
                top="from torch.utils.cpp_extension import load_inline\ntry:\n"
                "    m = load_inline(name='a')\nexcept Exception:\n    m = None\n",
                forward="m",
            ),
        ),
        ("forbidden_import", triton(top="import ctypes\n")),
        ("forbidden_import", triton(top="from subprocess import run\n")),
        ("forbidden_import", triton("import gc\ngc.get_objects()")),
        ("forbidden_import", triton("__import__('socket')")),
        ("forbidden_import", triton(top="import importlib\nimportlib.import_module('mmap')\n")),
        ("forbidden_import", triton(top="from torch import multiprocessing as mp\nmp.spawn(f)\n")),
        ("forbidden_import", triton("array = torch._C.TensorBase.numpy")),
        ("forbidden_import", triton("getattr(torch._C, 'TensorBase')")),
        ("forbidden_import", triton("self.__array_interface__ = {}")),
        (
            "forbidden_import",
            triton(top="from torch.utils._python_dispatch import _disable_current_modes as d\n"),
        ),
        (
            "forbidden_import",
            Kernel(
                SAMPLE_KERNELS["cpp"].source.replace(
                    "torch::empty_like(input)",
                    '(py::module_::import("numpy"), torch::empty_like(input))',
                ),
                "cpp",
            ),
        ),
        (
            "no_custom_kernel",
            triton(
                top="def host(x):\n    return x\n\n\n@triton.jit\ndef g(x):\n    return host(x)\n"
            ),
        ),
        ("suspicious_import", triton(top="import threading\n")),
        ("dynamic_code", triton("exec('x = 1')")),
        ("process_control", triton("os._exit(0)")),
        ("process_control", triton("sys.exit()")),
        ("process_control", triton(top="from os import fork as f\nf()\n")),
        ("timing_patch", triton(top="torch.cuda.synchronize = lambda *a: None\n")),
        ("timing_patch", triton(top="time.perf_counter, a = (lambda: 0), 1\n")),
        ("timing_patch", triton(top="setattr(torch.cuda, 'Event', None)\n")),
        ("timing_patch", triton(top="from torch import cuda as c\nc.Event.elapsed_time = None\n")),
        ("library_patch", triton(top="torch.allclose = lambda *a, **k: True\n")),
        ("library_patch", triton(top="torch.Tensor.__eq__ = None\n")),
        ("frame_access", triton("sys._getframe(1)")),
        ("frame_access", triton("f = (lambda: 0)\nf.f_back")),
        ("frame_access", triton("f = (lambda: 0)\nf.__closure__")),
        ("frame_access", triton(top="from inspect import stack\nstack()\n")),
        ("stream_use", triton("with torch.cuda.stream(torch.cuda.Stream()):\n    pass")),
        ("precision_downgrade", triton("y = y.half()")),
        ("precision_downgrade", triton("y = y.to(torch.bfloat16)")),
        (
            "precision_downgrade",
            triton(top="@triton.jit\ndef g(x):\n    return x.to(tl.float16)\n"),
        ),
        ("precision_downgrade", triton(top="torch.backends.cuda.matmul.allow_tf32 = True\n")),
        (
            "output_caching",
            triton("key = (x.data_ptr(), 1)\nif key in CACHE:\n    return CACHE[key]"),
        ),
        ("output_caching", triton("return CACHE.get(x.data_ptr())")),
        ("output_caching", triton("return CACHE[id(x)]")),
        ("output_caching", triton("self.kept = y\nreturn self.kept")),
        ("kernel_never_used", Kernel(HEAD + "class ModelNew(nn.Module):\n    pass\n", "triton")),
        (
            "kernel_never_used",
            Kernel(
                SAMPLE_KERNELS["cpp"].source.replace("extension.relu_scale_shift(x)", "x"), "cpp"
            ),
        ),
    ],
)
def test_each_rule_sees_what_it_is_for(code: str, kernel: Kernel) -> None:
    assert code in codes(kernel)


TUNED = """
def configs():
    return [triton.Config({"BLOCK": 64}, pre_hook=clear)]


def clear(arguments):
    arguments["y_ptr"].zero_()


def prune(configs, named, **kwargs):
    return configs[:1]


class Sizes:
    @staticmethod
    def even(arguments):
        return arguments["n"] % arguments["BLOCK"] == 0


@triton.autotune(
    configs=configs(), key=["n"], pre_hook=clear, prune_configs_by={"early_config_prune": prune}
)
@triton.heuristics({"EVEN": Sizes.even, "ODD": lambda arguments: not Sizes.even(arguments)})
@triton.jit
def tuned(x_ptr, y_ptr, n: configs(), EVEN, ODD, BLOCK: tl.constexpr = len(configs())):
    pass
"""


def test_decorators_may_call_plain_functions() -> None:
    assert codes(triton("tuned[(1,)](x, y, 1)", top=TUNED)) == set()


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("    pass\n", "    configs()\n", "no_custom_kernel"),
        ("    pass\n", "    Sizes.even(x_ptr)\n", "no_custom_kernel"),
        ('["y_ptr"].zero_()', '["y_ptr"].relu_()', "torch_compute_call"),
        ("pre_hook=clear,", "pre_hook=lambda a: torch.relu(a),", "torch_compute_call"),
        ("pre_hook=clear)", "pre_hook=lambda a: torch.relu(a))", "torch_compute_call"),
        ("return configs[:1]", "return torch.matmul(configs, configs)", "torch_compute_call"),
        ("pre_hook=clear,", "pre_hook=exec('x'),", "dynamic_code"),
        ("len(configs())", "os.fork()", "process_control"),
        ("len(configs())", "sys._getframe(1)", "frame_access"),
    ],
)
def test_decorators_keep_every_other_rule(before: str, after: str, code: str) -> None:
    top = TUNED.replace(before, after)
    assert top != TUNED
    assert code in codes(triton("tuned[(1,)](x, y, 1)", top=top))


@pytest.mark.parametrize(
    "text",
    [
        "import gc\ngc.collect()",
        "import gc",
        "from gc import collect\ncollect()",
        "import gc as g\ng.disable()\ng.enable()",
        "import multiprocessing\nmultiprocessing.cpu_count()",
        "import multiprocessing as mp\nmin(8, mp.cpu_count())",
        "from multiprocessing import cpu_count as count\ncount()",
        "import torch.multiprocessing as mp\nmp.cpu_count()",
        "os.cpu_count()",
    ],
)
def test_a_module_used_harmlessly_is_no_finding(text: str) -> None:
    assert codes(triton(text)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "import gc\ngc.get_objects()",
        "import gc\ngc.collect()\ngc.get_referrers(x)",
        "import gc\nf = gc.get_objects",
        "import gc\nf = gc",
        "import gc\ngc.collect.__self__.get_objects()",
        "import gc\ngetattr(gc, 'get_objects')()",
        "import gc\ngc.callbacks.append(print)",
        "import gc as g\ng.freeze()",
        "from gc import collect\ncollect.__self__.get_objects()",
        "from gc import collect, get_objects\ncollect()",
        "from gc import *",
        "import gc as m\nm.collect()\nimport math as m",
        "import multiprocessing\nmultiprocessing.Process()",
        "from multiprocessing import Pool",
        "import multiprocessing.pool",
        "import multiprocessing.pool as mp",
        "from multiprocessing import cpu_count as c\nc.__self__.Process()",
        "__import__('gc').collect()",
    ],
)
def test_a_module_used_otherwise_is_refused(text: str) -> None:
    assert "forbidden_import" in codes(triton(text))


def test_a_kernel_may_call_kernels_and_hosts_may_call_hosts() -> None:
    jit = "@triton.jit\ndef {}(x):\n    return {}\n\n\n"
    plain = "def {}(x):\n    return {}\n\n\n"
    top = jit.format("inner", "x") + jit.format("outer", "inner(x)")
    top += plain.format("plain", "x") + plain.format("size", "plain(x)")
    top += plain.format("later", "x") + "later = triton.jit(later)\n\n\n"
    top += jit.format("last", "later(x)")
    assert "no_custom_kernel" not in codes(triton(top=top))


PLAIN = "def plain(x):\n    return x\n\n\n"
IN_CLASS = "class Tools:\n    @staticmethod\n    def plain(x):\n        return x\n\n\n"


@pytest.mark.parametrize(
    ("top", "called"),
    [
        (PLAIN, "plain"),
        (PLAIN + "other = plain\n\n\n", "other"),
        ("plain = lambda x: x\n\n\n", "plain"),
        (IN_CLASS, "Tools.plain"),
    ],
)
def test_a_kernel_that_calls_a_function_no_compiler_takes_is_no_kernel(
    top: str, called: str
) -> None:
    top += f"@triton.jit\ndef outer(x):\n    return {called}(x)\n\n\n"
    assert "no_custom_kernel" in codes(triton(top=top))


@pytest.mark.parametrize(
    ("top", "called"),
    [
        (PLAIN + "plain = triton.jit(plain)\n\n\n", "plain"),
        ("if True:\n    def plain(x):\n        return x\n\n\n", "plain"),
        (IN_CLASS.replace("@static", "@triton.jit\n    @static"), "Tools.plain"),
        (PLAIN, "x.plain"),
    ],
)
def test_what_may_be_a_kernel_after_all_is_let_be(top: str, called: str) -> None:
    top += f"@triton.jit\ndef outer(x):\n    return {called}(x)\n\n\n"
    assert "no_custom_kernel" not in codes(triton(top=top))


def test_a_parameter_may_have_a_functions_name() -> None:
    top = PLAIN + "@triton.jit\ndef outer(x, plain):\n    return plain(x)\n\n\n"
    assert "no_custom_kernel" not in codes(triton(top=top))


@pytest.mark.parametrize(
    "use",
    [
        "torch._C._disable_current_modes()",
        "torch._C._pop_torch_dispatch_stack(None)",
        "with torch.utils._python_dispatch._pop_mode_temporarily():\n    pass",
        "with torch._C._DisableTorchDispatch():\n    pass",
        "getattr(x, '__array_interface__')",
    ],
)
def test_a_kernel_may_not_hide_what_torch_computes(use: str) -> None:
    assert "forbidden_import" in codes(triton(use))


def test_caching_by_decorator() -> None:
    cached = triton().source.replace(
        "    def forward", "    @functools.lru_cache(None)\n    def forward"
    )
    assert "output_caching" in codes(Kernel(cached, "triton"))


def test_findings_carry_lines_in_order_and_are_few() -> None:
    kernel = triton("\n".join(["y = torch.relu(y)"] * 50))
    found = screen(kernel, STRICT)
    lines = [finding.line for finding in found]
    assert len(found) == 5
    assert lines == sorted(lines)
    assert kernel.source.splitlines()[lines[0] - 1].strip() == "y = torch.relu(y)"


@pytest.mark.parametrize("comment", ["// at::relu(x)\n", "/* at::relu(\n x) */", "/* at::mm("])
def test_comments_in_cpp_source_trip_nothing(comment: str) -> None:
    source = SAMPLE_KERNELS["cpp"].source.replace(
        '\n"""\n\nextension', f'\n{comment}"""\n\nextension'
    )
    assert comment in source
    assert codes(Kernel(source, "cpp")) == set()


def test_many_functions_of_one_name_are_screened_in_linear_time() -> None:
    source = "class ModelNew:\n" + " def forward(self): self.forward()\n" * 20_000
    assert "no_custom_kernel" in codes(Kernel(source, "cpp"))


@pytest.mark.parametrize(
    "text",
    [
        *("at::", "::/*", "at::a::", "at::x(//", "/", "* /", "__float2half ", "at::" + "a" * 999),
        *('R"(', 'R"x(', "\\ ", "'//", '"//', '"/*'),
    ],
)
def test_long_strings_are_searched_in_linear_time(text: str) -> None:
    # Quadratic searching of this much would run for minutes.
    source = f"text = {text * (400_000 // len(text))!r}\n"
    assert "no_custom_kernel" in codes(Kernel(source, "cpp"))


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("class ModelNew(:\n", "syntax_error"),
        ("x = '\ud800'", "syntax_error"),
        ("-" * 100_000 + "1", "syntax_error"),
        ("x = 1\n" * 200_000, "too_large"),
    ],
)
def test_unreadable_sources_get_one_finding(source: str, code: str) -> None:
    (finding,) = screen(Kernel(source, "triton"), STRICT)
    assert (finding.code, finding.severity) == (code, Severity.INFO)


@pytest.mark.parametrize(
    "line",
    [
        "from triton.runtime import interpreter",
        "import triton.runtime.interpreter as i",
        "triton.runtime.interpreter.InterpreterBuilder.create_exp = print",
    ],
)
def test_triton_kernel_may_not_use_the_interpreter(line):
    source = SAMPLE_KERNELS["triton"].source
    assert "forbidden_import" not in codes(Kernel(source, "triton"))
    assert "forbidden_import" in codes(Kernel(f"{source}\n{line}\n", "triton"))
