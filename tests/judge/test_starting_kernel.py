"""Problems whose right outputs are a starting kernel's: verdicts by the real judge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.starting_kernel import BASELINE
from kernelgym.suites.spec_files import spec_from
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.types import Kernel, Problem, Status
from support.specs import SPEC, TRITON, TRITON_SPEC, changed

OFF = TRITON.replace("* factor,", "* factor + 1.0,")
BESIDE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns, count, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[((x.numel() + 127) // 128,)](x, y, x.numel(), 1.0, BLOCK=128)
        return x * self.factor
"""
"""A module that launches a kernel, and has torch compute the output."""


def suite(spec: dict[str, Any], **changes: Any) -> SpecSuite:
    one = [{"axes": {"rows": 64}}]
    changes = {"reference": "start", "contract__shapes": one, **changes}
    return SpecSuite(spec_from(changed(spec, **changes), Path()))


def start(spec: dict[str, Any], **changes: Any) -> tuple[Problem, Kernel]:
    found = suite(spec, **changes)
    return found.problems()[0], found.kernel


def test_start_that_is_off_is_right_and_the_sound_kernel_is_wrong(asking: LocalEvaluator) -> None:
    problem, kernel = start(TRITON_SPEC, source=OFF)
    verdict = asking.evaluate(problem, kernel)
    assert verdict.correct, verdict.message
    assert "calls agree with the starting kernel" in verdict.message
    sound = start(TRITON_SPEC)[1]
    other = asking.evaluate(problem, sound)
    assert other.status is Status.WRONG and "values differ" in other.message


def test_other_text_that_agrees_with_the_start_is_correct(asking: LocalEvaluator) -> None:
    problem, kernel = start(TRITON_SPEC)
    blocks = Kernel(kernel.source.replace("BLOCK = 64", "BLOCK = 128"), "triton")
    assert blocks != kernel and asking.evaluate(problem, blocks).correct


def test_kernel_that_leaves_the_starts_work_to_torch_is_rejected(asking: LocalEvaluator) -> None:
    problem, _ = start(TRITON_SPEC)
    verdict = asking.evaluate(problem, Kernel(TRITON + BESIDE, "triton"))
    assert verdict.status is Status.REJECTED, verdict.message


def test_start_by_public_seeds_is_judged(kernelbench: LocalEvaluator) -> None:
    problem, kernel = start(TRITON_SPEC, source=OFF)
    assert kernelbench.evaluate(problem, kernel).correct
    wrong = kernelbench.evaluate(problem, start(TRITON_SPEC)[1])
    assert wrong.status is Status.WRONG


STARTS = {
    "counts its calls": (
        ("scale_kernel[", "self.calls = getattr(self, 'calls', 0) + 1; scale_kernel["),
        ("count, factor, BLOCK=BLOCK", "count, factor * self.calls, BLOCK=BLOCK"),
        "disagrees with itself when it is run again",
    ),
    "leaves elements unwritten": (
        ("inside = offsets < count", "inside = offsets < count - 1"),
        "disagrees with itself when it is run again",
    ),
    "raises": (
        ("scale_kernel[", "raise ValueError('no such size'); scale_kernel["),
        r"failed \(runtime_error\): ValueError: no such size",
    ),
    "does not load": (("import triton\n", "import tritone\n"), r"failed \(compile_error\)"),
    "gives another shape": (("return y", "return y[1:]"), "output shape mismatch"),
    "ignores its inputs": (
        ("tl.load(x + offsets, mask=inside) * factor", "3.0 + 0.0 * offsets"),
        "same output for all inputs",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_start_that_cannot_be_relied_on_is_refused_in_one_line(
    name: str, asking: LocalEvaluator
) -> None:
    *edits, said = STARTS[name]
    source = start(TRITON_SPEC)[1].source
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    problem, kernel = start(TRITON_SPEC, source=source, entry="ModelNew", launch=None)
    verdict = asking.evaluate(problem, kernel)
    assert verdict.status is Status.UNAVAILABLE
    assert "starting kernel" in verdict.message and "\n" not in verdict.message
    assert re.search(said, verdict.message), verdict.message


def test_start_with_several_outputs_and_strides_is_compared(asking: LocalEvaluator) -> None:
    tensors = [
        {"name": "x", "shape": ["rows", "columns"], "role": "inout"},
        {"name": "y", "shape": ["columns", "rows"], "role": "output", "layout": "transposed"},
    ]
    source = start(TRITON_SPEC)[1].source.replace("return y", "return y.t(), x.clone()")
    changes = {"contract__tensors": tensors, "entry": "ModelNew", "launch": None}
    problem, kernel = start(TRITON_SPEC, source=source, **changes)
    verdict = asking.evaluate(problem, kernel)
    assert verdict.correct, verdict.message
    second = Kernel(source.replace("x.clone()", "x * 1.01"), "triton")
    wrong = asking.evaluate(problem, second)
    assert wrong.status is Status.WRONG and "output 1" in wrong.message


@pytest.mark.slow
def test_start_in_cpp_is_timed_beside_itself(timing: LocalEvaluator) -> None:
    problem, kernel = start(SPEC, contract__shapes=[{"axes": {"rows": 65536}}])
    verdict = timing.evaluate(problem, kernel)
    assert verdict.correct, verdict.message
    if verdict.timing is not None:  # on a busy host a kernel stays untimed
        assert verdict.timing.baseline == BASELINE
    wrong = Kernel(kernel.source.replace("x[i] *", "1.0f + x[i] *"), "cpp")
    assert timing.evaluate(problem, wrong).status is Status.WRONG
    assert timing.evaluate(problem, kernel).correct, "the start's process serves later verdicts"


def test_no_baseline_is_compiled_of_a_start(asking: LocalEvaluator) -> None:
    found = asking.prepare_baseline(start(TRITON_SPEC)[0])
    assert not found.prepared and "torch does not compile" in found.message
