"""What a model is told of kernels on a GPU: places in large outputs, errors, floors, profiles."""

from __future__ import annotations

import pytest

from kernelgym.feedback import category, feedback
from kernelgym.judge import LocalEvaluator
from kernelgym.types import Kernel, Problem, Reply, Verdict

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS, COLUMNS = 8192, 4096
PROBLEM = Problem(
    "Test/chain",
    "Test",
    1,
    "chain",
    f"""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(torch.relu(x) * 2.0 + 1.0) * x


def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS})]


def get_init_inputs():
    return []
""",
)
TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.sigmoid(tl.maximum(value, 0.0) * 2.0 + 1.0) * value, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        chain[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
"""
CUDA = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <c10/cuda/CUDAStream.h>
__global__ void chain(const float* x, float* out, long n) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] / (1.0f + expf(-fmaxf(x[i], 0.0f) * 2.0f - 1.0f));
}
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const long n = x.numel();
  auto stream = c10::cuda::getCurrentCUDAStream();
  chain<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
extension = load_inline(name="chain", cpp_sources="torch::Tensor run(torch::Tensor x);",
                        cuda_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
'''


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    with LocalEvaluator("cuda:0", "strict", cache_dir=tmp_path_factory.mktemp("cache")) as found:
        yield found


def changed(source: str, old: str, new: str, language: str = "triton") -> Kernel:
    assert old in source
    return Kernel(source.replace(old, new), language)


def told(found: Verdict, kernel: Kernel) -> str:
    text = str(feedback(found, Reply(kernel), level="profile"))
    print(text, "\n", found.message[:300])
    return text


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_a_correct_kernel_has_a_floor_and_a_profile(judge, language) -> None:
    kernel = Kernel(TRITON if language == "triton" else CUDA, language)
    found = judge.evaluate(PROBLEM, kernel)
    text = told(found, kernel)
    timing, profile = found.timing, found.profile
    assert timing is not None and profile is not None, found
    assert timing.moved_bytes == 2 * 4 * ROWS * COLUMNS
    assert 0.2 < timing.floor_share < 1.2
    assert timing.speedup > 1.5
    (only,) = profile.kernels
    assert (only.name, only.launches) == ("chain" if language == "triton" else "run", 1)
    assert profile.kernel_share > 0.9
    assert 0.5 < only.ms / timing.kernel_ms < 2.0
    assert "GB/s" in text and "passes in your own kernels" in text


def test_places_in_a_large_output(judge) -> None:
    kernel = changed(TRITON, "triton.cdiv(n, 1024)", "triton.cdiv(n, 1024) - 4")
    found = judge.evaluate(PROBLEM, kernel)
    told(found, kernel)
    assert found.mismatch is not None, found
    assert found.mismatch.pattern == "only the last row"
    assert found.mismatch.differing <= COLUMNS


def test_errors_of_triton_name_the_line(judge) -> None:
    for old, new, said in (
        ("tl.maximum(value", "tl.maximun(value", "maximun"),
        ("tl.arange(0, BLOCK)", "tl.arange(0, 1000)", "power of 2"),
    ):
        kernel = changed(TRITON, old, new)
        found = judge.evaluate(PROBLEM, kernel)
        text = told(found, kernel)
        line = next(n for n, t in enumerate(kernel.source.splitlines(), 1) if new in t)
        assert category(found) == "compile"
        assert said in text and f"line {line}: " in text


def test_errors_of_nvcc_name_the_line(judge) -> None:
    kernel = changed(CUDA, "expf(", "expff(", "cuda")
    found = judge.evaluate(PROBLEM, kernel)
    text = told(found, kernel)
    assert category(found) == "compile"
    assert 'identifier "expff" is undefined' in text
    assert "line 10: if (i < n) out[i]" in text


def test_an_illegal_access_is_told_without_noise(judge) -> None:
    kernel = changed(CUDA, "if (i < n) out[i]", "out[i + 8000000000L]", "cuda")
    found = judge.evaluate(PROBLEM, kernel)
    text = told(found, kernel)
    assert category(found) == "runtime"
    assert "illegal memory access" in text
    assert "CUDA_LAUNCH_BLOCKING" not in text
