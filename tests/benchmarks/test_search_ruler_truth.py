"""The script that times the start and the best of a search runs both."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search.linear_gelu import KERNEL, PROBLEM
from benchmarks.search.ruler_truth import ratio_of
from kernelgym import Kernel, LocalEvaluator


@pytest.mark.slow
def test_script_tells_a_kernel_from_one_that_does_an_eighth_of_its_work(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.source)
    texts = KERNEL.source, KERNEL.source.replace("k < inner", "k < inner / 8")
    kernels = []
    with LocalEvaluator(workers=1) as evaluator:
        for name, text in zip(("start", "best"), texts, strict=True):
            folder, kernel = tmp_path / name, Kernel(text, "cpp")
            folder.mkdir()
            assert evaluator.build(kernel) is not None
            module, library = folder / "kernel_module.py", folder / "extension.so"
            module.write_text(text)
            library.write_bytes(evaluator.artifacts(kernel)["extension.so"])
            kernels.append((module, library))
    assert ratio_of(tmp_path / "problem.py", kernels, 1.0)["ratio"] > 2.0
