"""Values that Triton leaves to the device: TF32 in `tl.dot`, and lanes that loaded nothing."""

import pytest

from kernelgym.types import Status
from support.interpreted import MATMUL, RELU, matmul, relu

FULL = 'tl.dot(a, b, input_precision="ieee")'


def judged(evaluator, kernel, problem=MATMUL):
    return evaluator.evaluate(problem, kernel)


def test_dot_without_precision_rounds_as_a_gpu_does(as_gpu):
    verdict = judged(as_gpu, matmul())
    assert verdict.status is Status.WRONG and 1e-5 < verdict.max_rel_error
    line = 1 + next(i for i, t in enumerate(matmul().source.splitlines()) if "tl.dot" in t)
    assert f'input_precision="ieee" (line {line})' in verdict.message


def test_dot_with_ieee_precision_is_exact(as_gpu):
    assert judged(as_gpu, matmul(FULL)).correct


def test_dot_in_three_steps_is_not_rounded(as_gpu):
    assert judged(as_gpu, matmul('tl.dot(a, b, input_precision="tf32x3")')).correct


def test_plain_interpreter_rounds_nothing(strict):
    assert judged(strict, matmul()).correct


@pytest.mark.parametrize(
    "load", ["tl.load({at}, mask={mask})", "tl.load({at}, {mask})"], ids=["keyword", "positional"]
)
def test_lanes_that_loaded_nothing_spoil_a_sum(as_gpu, load):
    verdict = judged(as_gpu, matmul(FULL, load))
    assert verdict.status is Status.WRONG and "give tl.load `other=`" in verdict.message


def test_lanes_that_loaded_nothing_may_be_left_out(as_gpu):
    kernel = relu("v = tl.load(x + at, mask=mask)\ny = tl.maximum(v, 0.0)")
    assert judged(as_gpu, kernel, RELU).correct


def test_lanes_that_loaded_nothing_may_be_replaced(as_gpu):
    load = "tl.where({mask}, tl.load({at}, mask={mask}), 0.0)"
    assert judged(as_gpu, matmul(FULL, load)).correct
