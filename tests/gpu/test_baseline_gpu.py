"""Compiled baselines on a GPU: prepared once, found whole, and captured where they are short."""

import dataclasses

import pytest

from kernelgym.baseline import command_for
from kernelgym.judge import LocalEvaluator
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Problem

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

STRICT = RULESETS["strict"]
SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(x) * 2 + 1).sigmoid()


def get_inputs():
    return [torch.randn({rows}, 1024)]


def get_init_inputs():
    return []
"""
KERNEL = Kernel(
    """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain(x, w, b, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    column = tl.arange(0, N)
    value = tl.load(x + at)
    centred = value - tl.sum(value, 0) / N
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / N + 1e-5)
    value = (centred * scale * tl.load(w + column) + tl.load(b + column)) * 2 + 1
    value = value * 0.5 * (1 + tl.erf(value * 0.7071067811865476))
    tl.store(out + at, tl.sigmoid(value))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        out = torch.empty_like(x)
        chain[(x.shape[0],)](x, self.norm.weight, self.norm.bias, out, N=1024)
        return out
""",
    "triton",
)


def chain(rows):
    return Problem(f"Test/chain{rows}", "Test", 1, f"chain{rows}", SOURCE.format(rows=rows))


def evaluator(baseline, folder):
    timing = dataclasses.replace(STRICT.timing, baseline=baseline)
    rules = dataclasses.replace(STRICT, timing=timing)
    return LocalEvaluator("cuda:0", rules, cache_dir=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_a_verdict_without_a_prepared_baseline_is_untimed(tmp_path):
    with evaluator("best", tmp_path) as judge:
        verdict = judge.evaluate(chain(4096), KERNEL)
    assert verdict.correct and verdict.timing is None, verdict
    assert command_for("Test/chain4096", STRICT, "cuda:0") in verdict.message


@pytest.mark.parametrize("rows", [256, 65536])  # captured in a CUDA graph, and not
def test_a_fused_chain_is_faster_compiled_and_that_is_what_counts(folder, rows):
    problem = chain(rows)
    with evaluator("best", folder) as judge:
        prepared = judge.prepare_baseline(problem)
        assert prepared.prepared, prepared
        assert prepared.compile_ms < prepared.eager_ms  # one pass over memory in place of six
        assert judge.prepare_baseline(problem).message == "was prepared before"
        best = judge.evaluate(problem, KERNEL)
    assert best.correct and best.timing is not None, best
    assert best.timing.baseline == "compile"
    with evaluator("eager", folder) as judge:
        eager = judge.evaluate(problem, KERNEL)
    assert eager.timing is not None and eager.timing.baseline == "eager", eager
    assert best.timing.reference_ms < eager.timing.reference_ms


def test_precisions_and_tf32_have_baselines_of_their_own(folder):
    problem = chain(256)
    with evaluator("compile", folder) as judge:
        judge.prepare_baseline(problem)
    rules = dataclasses.replace(
        STRICT, precision="bf16", timing=dataclasses.replace(STRICT.timing, baseline="compile")
    )
    with LocalEvaluator("cuda:0", rules, cache_dir=folder) as judge:
        assert "--precision bf16" in judge.evaluate(problem, KERNEL).message
