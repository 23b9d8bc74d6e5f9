"""Hardware counters on a GPU, read in the sandbox, and told in a turn's feedback."""

from __future__ import annotations

import pytest

from kernelgym import KernelEnv, LocalEvaluator
from kernelgym.counters import METRICS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Kernel, Problem
from support.triton_kernels import TRITON_KERNELS

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
CASES = {
    "matmul_kernel": TRITON_KERNELS["matmul"],
    "relu_scale_shift_kernel": (SAMPLE_PROBLEM, SAMPLE_KERNELS["cuda"]),
}


@pytest.mark.parametrize("name", CASES)
def test_profile_of_a_correct_kernel_has_counters_or_says_why_not(name: str) -> None:
    problem, kernel = CASES[name]
    with LocalEvaluator("cuda:0", timing=False) as evaluator:
        judged = evaluator.evaluate(problem, kernel)
        assert judged.correct, judged.message
        found = evaluator.profile(problem, kernel)
    if found.status in ("unavailable", "forbidden"):
        pytest.skip(found.message)
    assert found.status == "measured", found.message
    print(found.seconds, found.bottlenecks, dict(found.values))
    assert found.kernel.startswith(name) and set(found.values) <= set(METRICS)
    assert len(found.values) > len(METRICS) // 2


def test_feedback_at_level_profile_tells_what_limits_a_kernel() -> None:
    problem, kernel = CASES["matmul_kernel"]
    assert isinstance(problem, Problem) and isinstance(kernel, Kernel)
    with LocalEvaluator("cuda:0") as evaluator:
        env = KernelEnv(
            problems=problem,
            evaluator=evaluator,
            language="triton",
            max_turns=2,
            feedback_level="profile",
            profile="ncu",
        )
        env.reset(seed=0)
        told = str(env.step(f"<KERNEL>\n```python\n{kernel.source}\n```\n</KERNEL>")[0])
    print(told[-2500:])
    assert "Hardware counters of matmul_kernel" in told
