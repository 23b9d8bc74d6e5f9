"""The benchmark of false promotions offers kernels that are the start in other words."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from benchmarks.search.false_promotions import again, false_search, renamed
from kernelgym import Kernel
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Problem, Verdict
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.variant import read_variant, state_key


def noisy(seed: int) -> ScriptedEvaluator:
    """Return a judge whose times differ by 10 % from verdict to verdict."""
    numbers = random.Random(seed)

    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict("correct", speedup=0.5 * numbers.lognormvariate(0.0, 0.1))

    return ScriptedEvaluator(judge)


@pytest.mark.parametrize("name", EXAMPLES)
def test_renamed_kernels_are_states_of_their_own(name: str) -> None:
    _, start = EXAMPLES[name]
    keys = {state_key(read_variant(renamed(start, number))) for number in range(5)}
    assert len(keys | {state_key(read_variant(start))}) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_renamed_kernel_is_cpp(name: str, tmp_path: Path) -> None:
    cpp = file_of(read_variant(renamed(EXAMPLES[name][1], 3))).cpp
    from torch.utils.cpp_extension import include_paths

    path = tmp_path / "kernel.cpp"
    path.write_text(cpp)
    import sysconfig

    includes = [f"-I{each}" for each in [*include_paths(), sysconfig.get_path("include")]]
    subprocess.run(["g++", "-std=c++20", "-fsyntax-only", *includes, str(path)], check=True)


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_promotes_nothing(seed: int, tmp_path: Path) -> None:
    result = false_search("softmax", noisy(seed), tmp_path, seed, 8, workers=1)
    assert result["speedup"] == 1.0 and result["evaluations"] == 8
    assert again(tmp_path, noisy(seed)) is None


@pytest.mark.slow
def test_noise_alone_rarely_promotes_in_many_searches(tmp_path: Path) -> None:
    """A duel calls an equal kernel faster with probability 0.025; a search makes up to three."""
    promoted = 0
    for seed in range(1000, 1150):
        result = false_search("softmax", noisy(seed), tmp_path / str(seed), seed, 8, workers=1)
        promoted += result["speedup"] > 1.0
    assert promoted <= 150 * 3 * 0.025
