"""Extensions with CUDA sources, in the ways kernels are written, judged on a GPU."""

from __future__ import annotations

import os

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.types import Job, Kernel, Problem, Status

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROBLEM = Problem(
    id="Test/twice_relu",
    suite="Test",
    level=1,
    name="twice_relu",
    source="""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(1024, 517)]


def get_init_inputs():
    return []
""",
)

MODULE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load, load_inline

CUDA = r"""
{cuda}
"""
CPP = r"""
{cpp}
"""
{load}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return extension.f(x)
'''
DECLARATION = "torch::Tensor f(torch::Tensor x);"
INLINE = 'extension = load_inline("twice", CPP, CUDA, functions=["f"], verbose=False{options})'
BINDING = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f, "twice relu"); }'

# The pieces of a kernel: what it includes, how it doubles one value, how it is launched.
DEVICE = """
{includes}
__global__ void twice_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {before}
  if (i < n) y[i] = {value};
}}
"""
LAUNCH = (
    "twice_kernel<<<(n + 255) / 256, 256{stream}>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"
)
HOST = """
torch::Tensor f(torch::Tensor x) {{
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be contiguous and on the device");
  {prologue}
  auto y = torch::empty_like(x);
  const int n = x.numel();
  {launch}
  {epilogue}
  return y;
}}
"""


def _cuda(
    includes="", before="", value="fmaxf(x[i], 0.f) * 2.f", prologue="", stream="", epilogue=""
):
    launch = LAUNCH.format(stream=f", 0, {stream}" if stream else "")
    return DEVICE.format(includes=includes, before=before, value=value) + HOST.format(
        prologue=prologue, launch=launch, epilogue=epilogue
    )


def _module(cuda, cpp=DECLARATION, options="", load=INLINE):
    return MODULE.format(cuda=cuda, cpp=cpp, load=load.replace("{options}", options))


TYPED = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

template <typename T>
__global__ void twice_kernel(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x,
                             torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> y) {
  for (int j = threadIdx.x; j < x.size(1); j += blockDim.x) {
    const T v = x[blockIdx.x][j];
    y[blockIdx.x][j] = v > T(0) ? v * T(2) : T(0);
  }
}

torch::Tensor f(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::zeros({x.size(0), x.size(1)}, x.options());
  const auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice", [&] {
    twice_kernel<scalar_t><<<x.size(0), 128, 0, stream>>>(
        x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
CUB = """
#include <cub/cub.cuh>

__global__ void twice_kernel(const float* x, float* y, int n) {
  using Load = cub::BlockLoad<float, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<float, 128, 4, cub::BLOCK_STORE_TRANSPOSE>;
  __shared__ union { typename Load::TempStorage load; typename Store::TempStorage store; } shared;
  float values[4];
  const int start = blockIdx.x * 512, valid = n - start;
  Load(shared.load).Load(x + start, values, valid, 0.f);
  for (float& value : values) value = fmaxf(value, 0.f) * 2.f;
  __syncthreads();
  Store(shared.store).Store(y + start, values, valid);
}

torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  twice_kernel<<<(n + 511) / 512, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
GROUPS = _cuda("#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;").replace(
    "blockIdx.x * blockDim.x + threadIdx.x", "cg::this_grid().thread_rank()"
)
WMMA = _cuda(
    "#include <mma.h>\nusing namespace nvcuda;",
    before="""__shared__ float two[256];
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> tile;
  wmma::fill_fragment(tile, 2.f);
  if (threadIdx.x < 32) wmma::store_matrix_sync(two, tile, 16, wmma::mem_row_major);
  __syncthreads();""",
    value="fmaxf(x[i], 0.f) * two[threadIdx.x]",
)
LAUNCHER = (
    DEVICE.format(includes="", before="", value="fmaxf(x[i], 0.f) * 2.f")
    + """
void launch(const float* x, float* y, int n) { twice_kernel<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
)
WRAPPER = """
void launch(const float* x, float* y, int n);
torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  launch(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.numel()));
  return y;
}
"""
FROM_FILES = """
import os
import tempfile

folder = tempfile.mkdtemp()
for name, text in (("twice.cu", CUDA), ("bind.cpp", CPP)):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
extension = load("twice", [os.path.join(folder, "bind.cpp"), os.path.join(folder, "twice.cu")])
"""
THRUST = """
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/transform.h>

struct Twice {
  __device__ float operator()(float x) const { return fmaxf(x, 0.f) * 2.f; }
};

torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  thrust::transform(thrust::device, x.data_ptr<float>(), x.data_ptr<float>() + x.numel(),
                    y.data_ptr<float>(), Twice());
  return y;
}
"""
METHODS = _cuda(
    prologue="""#define CALL(name) z.name##_(0)
  auto z = x.clone().view({-1}).unsqueeze(0).squeeze(0).reshape_as(x);
  z = (z + x) * 0.5 - z.mean() * 0 + torch::matmul(z.t(), z).sum() * 0;
  CALL(add);
  z += at::cat({z.select(0, 0), z[0]}, 0).max() * 0;
  TORCH_CHECK(at::globalContext().hasCUDA() && z.sizes() == x.sizes());
  x = z.to(torch::kFloat32).contiguous();"""
)
COMPLEX = _cuda(
    before="const c10::complex<float> two(2.f, 0.f);",
    value="(std::exp(c10::complex<float>(0.f, 0.f)) * two).real() * fmaxf(x[i], 0.f)",
)
KEYWORDS = BINDING.replace('"twice relu"', '"twice relu", py::arg("x")')
HALF = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>"
STREAM = "at::cuda::getCurrentCUDAStream()"
CONTEXT = "#include <ATen/cuda/CUDAContext.h>"
EXTENSION = "#include <torch/extension.h>\n"
CORRECT = {
    "plain": _module(_cuda()),
    "own torch header, flags": _module(
        _cuda("#include <torch/extension.h>"),
        options=', extra_cuda_cflags=["-O3", "--use_fast_math", "-lineinfo", "-std=c++17"],'
        ' extra_cflags=["-O3"], extra_ldflags=["-lcudart", "-lcublas"], with_cuda=True',
    ),
    "templates, accessors, dispatch, guard": _module(TYPED),
    "device properties": _module(
        _cuda(
            CONTEXT,
            prologue="TORCH_CHECK(at::cuda::getCurrentDeviceProperties()->warpSize == 32);",
            stream=STREAM,
            epilogue="AT_CUDA_CHECK(cudaGetLastError());",
        )
    ),
    "half and bfloat16": _module(
        _cuda(
            HALF,
            value="__hgt(__float2half(x[i]), __float2half(-1.f)) &&"
            " __bfloat162float(__float2bfloat16(x[i])) > 0.f ? x[i] * 2.f : 0.f",
        )
    ),
    "cub": _module(CUB),
    "thrust": _module(THRUST),
    "complex numbers": _module(COMPLEX),
    "its own architectures": _module(
        _cuda(),
        options=', extra_cuda_cflags=["-gencode=arch=compute_80,code=sm_80",'
        ' "-gencode=arch=compute_90,code=[sm_90,compute_90]"]',
    ),
    "binds itself by keyword": _module(
        EXTENSION + _cuda() + KEYWORDS,
        cpp="",
        load='extension = load_inline("twice", CPP, CUDA)',
    ).replace("extension.f(x)", "extension.f(x=x)"),
    "cooperative groups": _module(GROUPS),
    "wmma": _module(WMMA),
    "launcher and wrapper": _module(LAUNCHER, WRAPPER),
    "binds itself": _module(
        EXTENSION + _cuda() + BINDING,
        cpp="",
        load='extension = load_inline("twice", CPP, CUDA)',
    ),
    "files": _module(EXTENSION + _cuda(), EXTENSION + DECLARATION + BINDING, load=FROM_FILES),
    "torch's C++ front end": _module(
        _cuda(
            "#include <torch/torch.h>",
            prologue="torch::nn::functional::ReLUFuncOptions options; (void)options;",
        )
    ),
    "cuBLAS' handle": _module(
        _cuda(CONTEXT, prologue="TORCH_CHECK(at::cuda::getCurrentCUDABlasHandle() != nullptr);"),
        options=', extra_ldflags=["-lcublas"]',
    ),
    "no implicit headers": _module(
        EXTENSION + "#include <cuda_runtime.h>\n" + _cuda(),
        EXTENSION + DECLARATION,
        options=", no_implicit_headers=True",
    ),
}
BESIDE = {"methods and operators of the tensor": _module(METHODS)}
"""More torch than in the reference: built and right, whatever policy makes of it."""
BROKEN = {
    "device code": (_module(_cuda(value="undeclared[i]")), 'identifier "undeclared" is undefined'),
    "host code": (_module(_cuda(prologue="torch::rellu(x);")), "rellu"),
    "nothing of that name": (_module("", cpp="torch::Tensor g();"), "was not declared"),
    "a flag": (_module(_cuda(), options=', extra_cuda_cflags=["-o/x"]'), "not allowed"),
    "shared memory": (
        _module(_cuda(before="__shared__ float big[999999]; big[threadIdx.x] = 1; x = big;")),
        "too much shared data",
    ),
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Every verdict by name, judged four at a time, since a build is what takes the time."""
    folder = os.environ.get("KERNELGYM_CACHE") or tmp_path_factory.mktemp("cache")
    sources = {**CORRECT, **BESIDE, **{name: source for name, (source, _) in BROKEN.items()}}
    jobs = [Job(PROBLEM, Kernel(source, "cuda")) for source in sources.values()]
    options = {"workers": 4, "timing": False, "cache_dir": folder}
    with LocalEvaluator("cuda:0", "strict", **options) as evaluator:
        return dict(zip(sources, evaluator.evaluate_many(jobs), strict=True))


@pytest.mark.parametrize("name", CORRECT)
def test_a_usual_way_of_writing_kernels_is_correct(name, verdicts):
    assert verdicts[name].status is Status.CORRECT, verdicts[name]


@pytest.mark.parametrize("name", BESIDE)
def test_torchs_own_operators_are_built_into_an_extension(name, verdicts):
    verdict = verdicts[name]
    assert verdict.compiled and 0 < verdict.trials_passed == verdict.trials, verdict


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_a_compile_error_with_the_compiler_s_words(name, verdicts):
    verdict = verdicts[name]
    assert verdict.status is Status.COMPILE_ERROR, verdict
    assert BROKEN[name][1] in verdict.log, verdict.log
