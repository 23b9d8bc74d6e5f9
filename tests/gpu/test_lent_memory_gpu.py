"""Large inputs of timed windows: the reference's process reads them where they were drawn."""

import textwrap

import pytest
import torch

from kernelgym.judge.session.call_buffers import CallBuffers
from kernelgym.judge.worker.worker import Worker
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Problem

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS = 1 << 15  # of 8192 values: 1 GiB

PROBLEM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x{more}):
        {body}
def get_inputs():
    return [torch.rand({rows}, 8192){second}]
def get_init_inputs():
    return []
"""

TRITON = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def shift_kernel(x_ptr, y_ptr, n, amount, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + amount, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x{more}):
        y = torch.empty_like(x)
        shift_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), {amount}, BLOCK=4096)
        return {result}
"""

CASES = {
    # what the reference does, its second input, what is added, what is returned, whether it borrows
    "plain": ("return x + 1.0", "", 1.0, "y", True),
    "returns a view of its input": ("return x.t()", "", 0.0, "y.t()", True),
    "a second input elsewhere": ("return x + 1.0", ", torch.rand({rows}, 8192)", 1.0, "y", False),
    "a number beside": ("return x + other", ", 2.0", 2.0, "y", True),
}


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """A worker in this process, so that what its sessions are asked can be looked at."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "scratch").mkdir()
    worker = Worker(RULESETS["kernelbench"], True, folder, folder / "scratch", device="cuda:0")
    yield worker
    worker.close()


@pytest.mark.parametrize("case", CASES)
def test_large_inputs_are_borrowed_where_that_changes_nothing(worker, monkeypatch, case):
    body, second, amount, result, borrows = CASES[case]
    more = ", other" if second else ""
    fields = {"body": body, "second": second.format(rows=ROWS), "more": more, "rows": ROWS}
    problem = Problem(f"t/{case}", "t", 1, case, textwrap.dedent(PROBLEM.format(**fields)))
    kernel = Kernel(TRITON.format(amount=amount, result=result, more=more), "triton")
    lent, borrow = [], CallBuffers.borrow

    def watched(buffers, inputs, output):
        lent.append(borrow(buffers, inputs, output))
        return lent[-1]

    monkeypatch.setattr(CallBuffers, "borrow", watched)
    verdict = worker.judge(problem, kernel)
    assert verdict.correct and verdict.timing is not None, verdict.message
    assert any(lent) is borrows
    again = worker.judge(problem, kernel)
    assert again.timing is not None
    assert torch.cuda.memory_reserved() < 4 << 30, "nothing that was lent is kept"
