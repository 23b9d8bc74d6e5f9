"""What a worker keeps of a device's memory between verdicts on very large inputs."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernelgym.judge import LocalEvaluator
from kernelgym.judging_memory import kernel_bytes
from kernelgym.types import Job, Kernel, Problem

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS = 1 << 18  # of 8192 values: 8 GiB
KEPT_BYTES = 6 << 30  # contexts, and what is kept for later however it is used

PROBLEM = Problem(
    "t/row_sums",
    "t",
    1,
    "row_sums",
    f"""
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)
def get_inputs():
    return [torch.rand({ROWS}, 8192)]
def get_init_inputs():
    return []
""",
)

KERNEL = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def sums_{number}(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x_ptr + row * columns + start + tl.arange(0, BLOCK))
    tl.store(y_ptr + row, tl.sum(total))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        sums_{number}[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
        return y
"""


@pytest.mark.parametrize("ruleset", ["kernelbench", "strict"])
def test_inputs_of_kernels_that_were_judged_take_no_memory(tmp_path, ruleset):
    free = torch.cuda.mem_get_info()[0]
    with LocalEvaluator("cuda:0", ruleset, cache_dir=tmp_path) as evaluator:
        for number in range(4):
            kernel = Kernel(KERNEL.format(number=number), "triton")
            verdict = evaluator.evaluate(PROBLEM, kernel)
            assert verdict.correct and verdict.timing is not None, verdict.message
            assert free - torch.cuda.mem_get_info()[0] < KEPT_BYTES


def test_an_honest_kernels_clock_is_believed_while_others_work(tmp_path):
    """As many short windows as processors, where a process may well be slow beside its calls."""
    small = PROBLEM.source.replace(str(ROWS), "256")
    problem = Problem("t/few_sums", "t", 1, "few_sums", small)
    kernels = [Kernel(KERNEL.format(number=number), "triton") for number in range(32)]
    with LocalEvaluator("cuda:0", "strict", workers=8, cache_dir=tmp_path) as evaluator:
        verdicts = evaluator.evaluate_many([Job(problem, kernel) for kernel in kernels])
    assert all(verdict.correct and verdict.timing for verdict in verdicts)
    said = [finding.code for verdict in verdicts for finding in verdict.findings]
    assert said.count("clock_mismatch") <= 1, said


NORMS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-5)
def get_inputs():
    return [torch.rand({rows}, 8192)]
def get_init_inputs():
    return []
"""

NORM = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def norm_{number}(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x / tl.sqrt(tl.sum(x * x) / BLOCK + 1e-5))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        norm_{number}[(x.shape[0],)](x, y, BLOCK=8192, num_warps=8)
        return y
"""


def test_workers_that_meet_a_large_problem_at_once_do_not_run_out_of_memory(tmp_path):
    rows = torch.cuda.get_device_properties(0).total_memory // 20 // (4 * 8192)
    problem = Problem("t/norms", "t", 1, "norms", NORMS.format(rows=rows))
    kernels = [Kernel(NORM.format(number=number), "triton") for number in range(4)]
    with LocalEvaluator("cuda:0", "strict", workers=4, cache_dir=tmp_path) as evaluator:
        verdicts = evaluator.evaluate_many([Job(problem, kernel) for kernel in kernels])
    assert all(v.correct and v.timing is not None for v in verdicts), verdicts
    assert not any(f.code == "fixed_tolerance" for v in verdicts for f in v.findings)


DOUBLED = PROBLEM.source.replace("x.sum(1)", "2.0 * x")
DOUBLING = (
    KERNEL.replace("sums_", "doubled_")
    .replace(
        KERNEL[KERNEL.index("    total = ") : KERNEL.index("class ModelNew")],
        """    for start in range(0, columns, BLOCK):
        at = row * columns + start + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, 2.0 * tl.load(x_ptr + at))

""",
    )
    .replace("torch.empty(x.shape[0], device=x.device)", "torch.empty_like(x)")
)


def test_judging_takes_no_more_memory_than_is_reserved_for_it(tmp_path):
    """If outputs of earlier calls stayed allocated, a worker would take others' memory."""
    problem = Problem("t/doubled", "t", 1, "doubled", DOUBLED)
    size = 4 * ROWS * 8192
    most = kernel_bytes(size, size) + KEPT_BYTES
    if most > torch.cuda.get_device_properties(0).total_memory:
        pytest.skip("the GPU has less memory than judging may take")
    free, least, done = torch.cuda.mem_get_info()[0], [], threading.Event()

    def watch():
        while not done.wait(0.01):
            least.append(torch.cuda.mem_get_info()[0])

    with (
        ThreadPoolExecutor(1) as pool,
        LocalEvaluator("cuda:0", "strict", cache_dir=tmp_path) as evaluator,
    ):
        watching = pool.submit(watch)
        try:
            verdict = evaluator.evaluate(problem, Kernel(DOUBLING.format(number=0), "triton"))
        finally:
            done.set()
        watching.result()
    assert verdict.correct and verdict.timing is not None, verdict.message
    assert free - min(least) < most
