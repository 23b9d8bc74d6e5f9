"""The switch of the fast interpreter: verdicts are the same either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.types import Kernel, Verdict
from support.programs import AFFINE, TRITON_SOURCE

KERNELS = {
    "correct": TRITON_SOURCE,
    "wrong": TRITON_SOURCE.replace("* 2 + bias", "* 2 - bias"),
    "edge": TRITON_SOURCE.replace("offsets % M", "offsets % (M - 1)"),
    "unmasked": TRITON_SOURCE.replace("x + offsets, mask=mask", "x + offsets"),
    "out of bounds": TRITON_SOURCE.replace("out + offsets", "out + offsets + 1"),
    "shapes": TRITON_SOURCE.replace("value, 0.0)", "value, tl.arange(0, 64))"),
    "name": TRITON_SOURCE.replace("tl.maximum(", "tl.no_such_function("),
    "raises": TRITON_SOURCE.replace(
        "        n = x.numel()",
        "        import os\n        raise RuntimeError(sorted(os.environ))",
    ),
    "syntax": TRITON_SOURCE.replace("def forward(self, x, b):", "def forward(self, x, b)"),
    "idle": TRITON_SOURCE.replace("        return out", "        return torch.relu(x) * 2 + b"),
}


@pytest.mark.slow
def test_verdicts_are_the_same_by_both_interpreters(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(KERNELS.values())) == len(KERNELS)
    monkeypatch.delenv("KERNELGYM_PLAIN_INTERPRETER", raising=False)
    fast = judged(cache_dir, dict.fromkeys(KERNELS, ""))
    monkeypatch.setenv("KERNELGYM_PLAIN_INTERPRETER", "1")
    plain = judged(cache_dir, {name: verdict.seed for name, verdict in fast.items()})
    for name in KERNELS:
        assert without_times(plain[name]) == without_times(fast[name]), name
    assert [fast[name].status.value for name in KERNELS] == [
        *("correct", "wrong", "wrong", "runtime_error", "runtime_error"),
        *("runtime_error", "runtime_error", "runtime_error", "compile_error", "rejected"),
    ]


def judged(cache_dir: Path, seeds: dict[str, str]) -> dict[str, Verdict]:
    with LocalEvaluator(cache_dir=cache_dir, timing=False) as evaluator:
        return {
            name: evaluator.evaluate(AFFINE, Kernel(KERNELS[name], "triton"), seed=seed)
            for name, seed in seeds.items()
        }


def without_times(verdict: Verdict) -> dict[str, object]:
    """All that a verdict says but how long it took."""
    said = verdict.to_dict()
    return {name: value for name, value in said.items() if name not in ("wall_s", "stages")}
