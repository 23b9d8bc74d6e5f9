"""Environments in small sizes: what they draw and find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import KernelgymError, ProblemError, UnknownName, UsageError
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from support.small_forms import write_checkout

FORM = "KernelBench/L1/21@small"


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(write_checkout(tmp_path / "checkout")))
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def environment(**options: Any) -> KernelEnv:
    given: dict[str, Any] = {"evaluator": ScriptedEvaluator(), "allow_degenerate": True}
    return KernelEnv(**given | options)


def test_env_small_draws_and_names_forms() -> None:
    env = environment(level=1, sizes="small")
    assert [problem.id for problem in env.problems] == [FORM]
    observation, info = env.reset(seed=0)
    assert env.problem.id == FORM and info["problem_id"] == FORM
    assert "batch_size = 4096" not in observation and "393216" not in observation


@pytest.mark.parametrize("asked", [21, "21", "L1/21", "L1/21@small", FORM, "21_Sigmoid"])
def test_env_small_finds_a_form_by_any_name(asked: str | int) -> None:
    env = environment(level=1, sizes="small")
    env.reset(options={"problem_id": asked})
    assert env.problem.id == FORM


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        (2, ProblemError, r"L1/2 \(2_Ours\) has no small form"),
        ("L3/11", ProblemError, r"L3/11 \(11_VGG16\) has no small form"),
        ("KernelBench/L1/21", UnknownName, "in full size"),
        ("L1/77", UnknownName, "L1/77"),
    ],
)
def test_env_small_never_gives_full_size(
    asked: str | int, error: type[KernelgymError], said: str
) -> None:
    env = environment(level=1, sizes="small")
    with pytest.raises(error, match=said):
        env.reset(options={"problem_id": asked})


def test_env_full_gives_a_form_by_its_id() -> None:
    env = environment(level=1)
    env.reset(options={"problem_id": FORM})
    assert env.problem.id == FORM
    env.reset(options={"problem_id": 21})
    assert env.problem.id == "KernelBench/L1/21"


def test_env_small_of_other_problems_is_refused() -> None:
    with pytest.raises(UsageError, match="only KernelBench has problems in small sizes"):
        environment(suite="Synthetic", level=1, sizes="small")
    with pytest.raises(UsageError, match="leave sizes out"):
        environment(problems=[SAMPLE_PROBLEM], sizes="small")
    with pytest.raises(UnknownName, match="tiny"):
        environment(level=1, sizes="tiny")
    with pytest.raises(UnknownName, match="Level 4 has no small forms"):
        environment(level=4, sizes="small")
