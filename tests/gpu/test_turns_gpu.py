"""A problem of which a device holds one side at a time: the sides take turns, and are timed."""

import pytest

from kernelgym.judge.session.call_buffers import CallBuffers
from kernelgym.judge.timing import windows
from kernelgym.judge.worker.worker import Worker
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Problem

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS = 1 << 15  # of 8192 values: 1 GiB

PROBLEM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x + 1.0
def get_inputs():
    return [torch.rand({rows}, 8192)]
def get_init_inputs():
    return []
"""

TRITON = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1.0, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        add_one[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
"""


@pytest.mark.parametrize(
    ("rules", "in_turn"), [("kernelbench", False), ("kernelbench", True), ("strict", True)]
)
def test_sides_take_turns_only_where_they_have_to(tmp_path, monkeypatch, rules, in_turn):
    problem = Problem("t/turns", "t", 1, "turns", PROBLEM.format(rows=ROWS))
    (tmp_path / "scratch").mkdir()
    worker = Worker(RULESETS[rules], True, tmp_path, tmp_path / "scratch", device="cuda:0")
    given_back, vacate = [], CallBuffers.vacate

    def watched(buffers):
        given_back.append(buffers)
        vacate(buffers)

    monkeypatch.setattr(CallBuffers, "vacate", watched)
    if in_turn:
        monkeypatch.setattr(windows, "holds_all", lambda *sizes: False)
    try:
        (verdict,) = worker.judge(problem, [Kernel(TRITON, "triton")])
    finally:
        worker.close()
    assert verdict.correct and verdict.timing is not None, verdict.message
    assert (len(given_back) > 2 * verdict.timing.samples) is in_turn
    assert not [each for each in verdict.findings if each.code == "clock_mismatch"]
