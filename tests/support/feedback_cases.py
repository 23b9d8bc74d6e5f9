"""One verdict per category of feedback, and more where a category has several faces."""

from __future__ import annotations

import dataclasses

from kernelgym.testing import SAMPLE_KERNELS, reply, verdict
from kernelgym.types import (
    Finding,
    Kernel,
    KernelTime,
    Mismatch,
    Profile,
    Severity,
    Timing,
    Verdict,
)

CUDA = Kernel(
    '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void scale(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * factr;
}
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_lik(x);
  scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
  return out;
}
"""
extension = load_inline(name="scale", cpp_sources="torch::Tensor run(torch::Tensor x);",
                        cuda_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
''',
    "cuda",
)
TRITON = SAMPLE_KERNELS["triton"]

NVCC = """\
kernel.cu(4): error: identifier "factr" is undefined
    if (i < n) out[i] = x[i] * factr;
                               ^

kernel.cu(7): error: namespace "torch" has no member "empty_lik"
    auto out = torch::empty_lik(x);
                      ^

2 errors detected in the compilation of "kernel.cu".
"""
GCC = """\
In file included from unit.cpp:2:
kernel.cpp: In function ‘at::Tensor run(at::Tensor)’:
kernel.cpp:7:22: error: ‘empty_lik’ is not a member of ‘torch’; did you mean ‘empty_like’?
    7 |   auto out = torch::empty_lik(x);
      |                      ^~~~~~~~~
      |                      empty_like
"""
_LINES = TRITON.source.splitlines()
_STORE = next(line for line in _LINES if "tl.store" in line)
STORE_LINE = _LINES.index(_STORE) + 1
TRITON_ERROR = f"""\
CompilationError: at 6:28:
def kernel(x, out, n, BLOCK: tl.constexpr):
    # a comment of the kernel's own
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{_STORE}
                            ^
AttributeError("module 'triton.language' has no attribute 'maximun'") (line 24, in forward)"""
ILLEGAL = """\
AcceleratorError: CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/ for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace \
below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Device-side assertion tracking was not enabled by user."""
RESOURCES = (
    "OutOfResources: out of resource: shared memory, Required: 294912, Hardware limit: 232448. "
    "Reducing block sizes or `num_stages` may help. (line 24, in forward)"
)


def wrong(pattern: str, differing: int, **fields: object) -> Verdict:
    """Return a verdict on an output of shape (37, 131) that is wrong at some elements."""
    found = verdict("wrong", trials_passed=0, trials=9, message="9 of 9 calls failed")
    place = Mismatch(differing, (37, 131), pattern=pattern, call=1, calls=9, **fields)  # type: ignore[arg-type]
    return dataclasses.replace(
        found, mismatch=place, max_abs_error=14.62, max_rel_error=3.27, seed="5ec3e7"
    )


def timed(speedup: float, **fields: object) -> Verdict:
    """Return a correct verdict with a full timing."""
    found = verdict("correct", trials=9)
    timing = Timing(
        0.5 / speedup,
        0.5,
        speedup,
        speedup * 0.97,
        samples=24,
        speedup_high=speedup * 1.04,
        floor_ms=0.2,
        moved_bytes=805_306_368,
    )
    spent = 0.5 / speedup
    profile = Profile(spent, (KernelTime("relu_scale_shift", 2, spent * 0.9),))
    return dataclasses.replace(
        found,
        timing=timing,
        custom_share=1.0,
        profile=profile,
        **fields,  # type: ignore[arg-type]
    )


CASES: dict[str, tuple[Verdict, str]] = {
    "format": (verdict("no_kernel", message="no kernel"), "I think tiling would help here."),
    "format_cut_off": (
        verdict("no_kernel", message="no kernel"),
        "<think>\nso\n</think>\n<KERNEL>\n```python\nimport torch\n",
    ),
    "policy": (
        verdict(
            "rejected",
            message="no Triton kernel was launched while the output was computed",
            findings=(
                Finding("torch_compute_call", "torch.matmul does the work", Severity.SOFT, 12),
                Finding(
                    "no_kernel_launch",
                    "no Triton kernel was launched while the output was computed",
                    Severity.HARD,
                ),
            ),
        ),
        reply(TRITON),
    ),
    "policy_inputs_changed": (
        verdict("wrong", message="9 of 9 calls failed; call 1 of 9: the kernel changed input "
                "tensor 0"),
        reply(TRITON),
    ),
    "compile_nvcc": (
        verdict(
            "compile_error",
            message='the extension did not compile: kernel.cu(4): error: identifier "factr" is '
            "undefined",
            log=NVCC,
        ),
        reply(CUDA),
    ),
    "compile_gcc": (
        verdict("compile_error", message="the extension did not compile: kernel.cpp:7:22", log=GCC),
        reply(CUDA),
    ),
    "compile_triton": (verdict("runtime_error", message=TRITON_ERROR), reply(TRITON)),
    "compile_syntax": (
        verdict(
            "compile_error",
            message="the module did not load: SyntaxError: unmatched ')' (kernel.py, line 3) "
            "(line 3)",
        ),
        reply(TRITON),
    ),
    "runtime": (
        verdict(
            "runtime_error",
            message="IndexError: out-of-bounds store: 1297 of 2048 active lanes lie outside the "
            "launch's tensors; the first is 0 elements past the end of 'out' (line 24, in forward; "
            f"line {STORE_LINE}, in relu_scale_shift)",
            log="launching with a grid of 3\n",
        ),
        reply(TRITON),
    ),
    "runtime_cuda": (verdict("runtime_error", message=ILLEGAL), reply(CUDA)),
    "memory": (verdict("runtime_error", message=RESOURCES), reply(TRITON)),
    "timeout": (
        verdict("timeout", message="no answer within 60 s (while running forward)"),
        reply(TRITON),
    ),
    "shape": (
        verdict("wrong", trials=9, message="9 of 9 calls failed; call 1 of 9: output shape "
                "mismatch: expected [37, 131], got [37, 5]"),
        reply(TRITON),
    ),
    "dtype": (
        verdict("wrong", trials=9, message="9 of 9 calls failed; call 1 of 9: output dtype "
                "mismatch: expected float32, got float64"),
        reply(TRITON),
    ),
    "numerics_last_block": (
        wrong(
            "only the last block of 4096 (elements 4096 to 4846) in row-major order",
            751,
            first=((31, 35), (31, 36), (31, 37), (31, 38)),
            worst_at=(33, 7),
            relation="zero",
        ),
        reply(TRITON),
    ),
    "numerics_scaled": (
        wrong(
            "every element",
            4847,
            first=((0, 0), (0, 1), (0, 2), (0, 3)),
            worst_at=(5, 99),
            relation="scaled",
            ratio=1.5,
            inputs="shifted",
        ),
        reply(TRITON),
    ),
    "numerics_nan": (
        wrong("every row but the first", 4716, first=((1, 0),), nonfinite=4716, relation="nan"),
        reply(TRITON),
    ),
    "numerics_scattered": (
        wrong(
            "scattered over the whole output",
            2436,
            first=((0, 0), (0, 3)),
            worst_at=(8, 8),
            inputs="salted",
            nonfinite=3,
            output=1,
            outputs=2,
        ),
        reply(TRITON),
    ),
    "slow": (timed(0.62), reply(TRITON)),
    "success": (
        timed(
            1.83,
            findings=(
                Finding("host_bound", "its calls cannot be captured", Severity.INFO),
            ),
        ),
        reply(TRITON),
    ),
    "success_untimed": (verdict("correct", trials=9), reply(TRITON)),
    "infrastructure": (verdict("unavailable", message="the worker died twice"), reply(TRITON)),
}  # fmt: skip
"""Name, which begins with the category; verdict and answer."""
