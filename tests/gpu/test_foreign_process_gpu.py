"""A program that is not the judge's keeps the device busy: kernels stay untimed until it ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.types import Kernel, Problem, Status

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROBLEM = Problem(
    "Test/relu",
    "Test",
    1,
    "relu",
    """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(4096, 4096)]


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
def relu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
FOREIGN = """
import torch
one = torch.randn(1 << 28, device="cuda:0")
two = torch.empty_like(one)
print("at work", flush=True)
while True:
    for _ in range(64):
        two.copy_(one)
    torch.cuda.synchronize()
"""


@contextlib.contextmanager
def foreign_work() -> Iterator[None]:
    """Keep the device's memory busy from a process that the judge did not start."""
    with subprocess.Popen([sys.executable, "-c", FOREIGN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"at work\n"
            yield
        finally:
            process.kill()


def test_a_foreign_process_leaves_kernels_untimed(tmp_path: Path) -> None:
    kernels = [Kernel(f"{TRITON}# {number}\n", "triton") for number in range(3)]
    with LocalEvaluator("cuda:0", "strict", cache_dir=tmp_path) as evaluator:
        before = evaluator.evaluate(PROBLEM, kernels[0])
        with foreign_work():
            during = evaluator.evaluate(PROBLEM, kernels[1])
        after = evaluator.evaluate(PROBLEM, kernels[2])
    assert {v.status for v in (before, during, after)} == {Status.CORRECT}
    assert before.timing is not None and after.timing is not None
    assert during.timing is None
    assert "device_shared" in {finding.code for finding in during.findings}
