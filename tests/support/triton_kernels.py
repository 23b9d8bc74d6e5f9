"""Triton kernels that tests search, with inputs of odd sizes and what they compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.search.gpu_kernels import OWN_TASKS
from kernelgym import Kernel, Problem

_TOTAL = """

@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(1, device=x.device)
        grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)
        sum_kernel[grid](x, out, x.numel(), BLOCK=64)
        return out
"""
_NAIVE_MATMUL = """

@triton.jit
def naive_matmul(a_ptr, b_ptr, c_ptr, M, N, K,
                 BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid = tl.program_id(0)
    num_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_n
    pid_n = pid % num_n
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows[:, None] * K + ks[None, :]
    b_at = b_ptr + ks[:, None] * N + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < K - k * BLOCK_K), other=0.0)
        b = tl.load(b_at, mask=(ks[:, None] < K - k * BLOCK_K) & (cols[None, :] < N), other=0.0)
        acc += tl.sum(a[:, :, None] * b[None, :, :], axis=1)
        a_at += BLOCK_K
        b_at += BLOCK_K * N
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = lambda META: (
            triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),
        )
        naive_matmul[grid](a, b, c, M, N, K, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
        return c
"""
_GELU = """
BLOCK = 64


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 1024):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        gelu_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK)
        return y
"""
_RMS_NORM = """

@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=4),
        triton.Config({"BLOCK": 128}, num_warps=8, num_stages=2),
    ],
    key=["n_cols"],
)
@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += x * x
    mean = tl.sum(total, axis=0) / n_cols
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, x / tl.sqrt(mean + 1e-5), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rms_norm_kernel[(x.shape[0],)](x, y, x.shape[1])
        return y
"""
_OUTER = """

@triton.jit
def outer_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + rows * K + k, mask=rows < M, other=0.0)
        b = tl.load(b_ptr + k * N + cols, mask=cols < N, other=0.0)
        acc += a[:, None] * b[None, :]
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        outer_kernel[grid](a, b, c, M, N, K, BLOCK_M=16, BLOCK_N=16)
        return c
"""
_ROW_RANGE = """

@triton.jit
def range_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr = 64):
    row = tl.program_id(0)
    total = 0.0
    low = float("inf")
    high = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=0.0)
        total += tl.sum(x, axis=0)
        low = tl.minimum(low, tl.min(tl.where(inside, x, float("inf")), axis=0))
        high = tl.maximum(tl.where(inside, x, float("-inf")), high)
    middle = total / n_cols
    # Distances from the mean, in a second pass.
    spread = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        spread = spread + tl.sum(tl.where(cols < n_cols, tl.abs(x - middle), 0.0), axis=0)
    tl.store(y_ptr + row, (tl.max(high, axis=0) - low) / spread)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        rows = x.shape[0]
        range_kernel[(rows,)](x, y, x.shape[1])
        return y
"""
_RANGE = "(x.amax(1) - x.amin(1)) / (x - x.mean(1, keepdim=True)).abs().sum(1)"
_PRODUCT = "torch.randn(37, 50), torch.randn(50, 41)"
_RMS = "x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)"
_HEAD = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
_PROBLEM = """\
import torch


class Model(torch.nn.Module):
    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def _problem(name: str, inputs: str, result: str, names: str) -> Problem:
    source = _PROBLEM.format(inputs=inputs, result=result, names=names)
    return Problem(f"t/{name}", "t", 1, name, source)


def _written(text: str) -> Kernel:
    return Kernel(_HEAD + text, "triton")


TRITON_KERNELS: dict[str, tuple[Problem, Kernel]] = {
    name: (_problem(name, *given), kernel)
    for name, (kernel, *given) in {
        "matmul": (OWN_TASKS["matmul_fp32"][1], _PRODUCT, "a @ b", "a, b"),
        "naive_matmul": (_written(_NAIVE_MATMUL), _PRODUCT, "a @ b", "a, b"),
        "outer": (_written(_OUTER), _PRODUCT, "a @ b", "a, b"),
        "softmax": (
            OWN_TASKS["softmax"][1],
            "torch.randn(5, 333)",
            "torch.softmax(x, dim=1)",
            "x",
        ),
        "total": (_written(_TOTAL), "torch.randn(1000)", "x.sum().reshape(1)", "x"),
        "gelu": (_written(_GELU), "torch.randn(1000)", "torch.nn.functional.gelu(x)", "x"),
        "row_range": (_written(_ROW_RANGE), "torch.randn(5, 333)", _RANGE, "x"),
        "rms_norm": (_written(_RMS_NORM), "torch.randn(5, 333)", _RMS, "x"),
    }.items()
}
"""(problem, kernel) by name."""
_RUN = """
import importlib.util, json, sys
import torch
import triton

device = sys.argv.pop(1)


class FirstConfig:
    def __init__(self, function, config):
        self.function, self.config = function, config

    def __getitem__(self, grid):
        options = self.config.all_kwargs()
        return lambda *args, **more: self.function[grid](*args, **options, **more)


if device == "cpu":  # the interpreter has no autotuner
    triton.autotune = lambda configs, key: lambda function: FirstConfig(function, configs[0])
problem, *files = sys.argv[1:]
given = {"__name__": "problem"}
exec(compile(open(problem).read(), problem, "exec"), given)
torch.manual_seed(0)
inputs = [each.to(device) for each in given["get_inputs"]()]
expected = given["Model"]()(*inputs)
wrong = {}
for number, file in enumerate(files):
    spec = importlib.util.spec_from_file_location(f"kernel_{number}", file)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        found = module.ModelNew()(*[each.clone() for each in inputs])
        if not torch.allclose(found, expected, rtol=1e-4, atol=1e-4):
            wrong[file] = f"differs by {(found - expected).abs().max().item()}"
    except Exception as error:
        wrong[file] = f"{type(error).__name__}: {error}"
print(json.dumps(wrong))
"""


def wrong_ones(name: str, texts: list[str], folder: Path, device: str = "cpu") -> dict[str, str]:
    """Run modules, on the CPU by Triton's interpreter; return what was wrong, by text."""
    problem = folder / "problem.py"
    problem.write_text(TRITON_KERNELS[name][0].source)
    files = {}
    for number, text in enumerate(texts):
        files[folder / f"variant_{number}.py"] = text
    for file, text in files.items():
        file.write_text(text)
    made = subprocess.run(
        [sys.executable, "-c", _RUN, device, str(problem), *map(str, files)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1" if device == "cpu" else "0"},
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    wrong = json.loads(made.stdout.splitlines()[-1])
    return {files[Path(file)]: why for file, why in wrong.items()}
