"""Hardware counters on a GPU, read in the sandbox."""

from __future__ import annotations

import pytest

from kernelgym import LocalEvaluator
from kernelgym.counters import METRICS
from support.triton_kernels import TRITON_KERNELS

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def test_profile_of_a_correct_kernel_has_counters_or_says_why_not() -> None:
    problem, kernel = TRITON_KERNELS["matmul"]
    with LocalEvaluator("cuda:0", timing=False) as evaluator:
        assert evaluator.evaluate(problem, kernel).correct
        found = evaluator.profile(problem, kernel)
    if found.status in ("unavailable", "forbidden"):
        pytest.skip(found.message)
    assert found.status == "measured", found.message
    assert found.kernel == "matmul_kernel" and set(found.values) >= set(METRICS[:3])
