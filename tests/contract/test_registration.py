"""The ids: which there are, how they are named, and what a spec can do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import kernelgym
from kernelgym import devices
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.errors import ProblemError, UnknownName, UnsupportedLanguage, UsageError
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator


@pytest.fixture(autouse=True)
def checkout(kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))


def test_every_id_is_registered() -> None:
    expected = {
        f"{suite}-L{level}-{mode}-v0"
        for suite, levels in (("KernelBench", 4), ("Synthetic", 3))
        for level in range(1, levels + 1)
        for mode in ("SingleTurn", "MultiTurn")
    }
    assert set(kernelgym.ENV_IDS) == expected
    for env_id in expected:
        spec = gym.spec(env_id)
        assert spec.nondeterministic and spec.max_episode_steps is None
        assert isinstance(spec.entry_point, str) and isinstance(spec.vector_entry_point, str)


def test_modes_differ_in_turns_only() -> None:
    single = gym.make("KernelBench-L2-SingleTurn-v0").unwrapped
    multi = gym.make("KernelBench-L2-MultiTurn-v0").unwrapped
    assert isinstance(single, KernelEnv) and isinstance(multi, KernelEnv)
    assert (single.max_turns, multi.max_turns) == (1, 4)
    assert single.problems == multi.problems
    assert {problem.level for problem in single.problems} == {2}
    more = gym.make("KernelBench-L2-MultiTurn-v0", max_turns=7).unwrapped
    assert isinstance(more, KernelEnv) and more.max_turns == 7


def test_the_short_id_is_the_newest_version() -> None:
    with pytest.warns(UserWarning, match="latest versioned environment"):
        env = gym.make("KernelBench-L1-MultiTurn")
    assert env.spec is not None and env.spec.id == "KernelBench-L1-MultiTurn-v0"


def test_the_module_prefix_needs_no_import(kernelbench_checkout: Path) -> None:
    code = (
        "import gymnasium as gym\n"
        "env = gym.make('kernelgym:KernelBench-L1-SingleTurn-v0')\n"
        "assert env.unwrapped.max_turns == 1\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_spec_survives_json() -> None:
    options = {"language": "cpp", "problems": "1-2", "max_turns": 2, "reward": "sparse"}
    env = gym.make("KernelBench-L1-MultiTurn-v0", **options)
    assert env.spec is not None
    text = env.spec.to_json()
    again = gym.make(gym.envs.registration.EnvSpec.from_json(text)).unwrapped
    assert isinstance(again, KernelEnv)
    assert (again.language, again.max_turns) == ("cpp", 2)
    assert again.problems == env.unwrapped.problems  # type: ignore[attr-defined]


def test_spec_of_an_env_with_an_evaluator_shares_it() -> None:
    evaluator = ScriptedEvaluator()
    env = gym.make("KernelBench-L1-MultiTurn-v0", evaluator=evaluator)
    assert env.spec is not None
    assert env.spec.make().unwrapped.evaluator is evaluator  # type: ignore[attr-defined]


def test_make_vec_gives_the_batched_environment() -> None:
    envs = gym.make_vec("KernelBench-L1-SingleTurn-v0", num_envs=3, language="cpp")
    assert isinstance(envs, KernelVectorEnv) and envs.num_envs == 3
    assert envs.spec is not None and envs.spec.id == "KernelBench-L1-SingleTurn-v0"
    envs.close()


BAD_OPTIONS = {
    "language": ({"language": "fortran"}, UnknownName, "fortran"),
    "language for the device": ({"language": "cuda"}, UnsupportedLanguage, "this device runs: tri"),
    "device": ({"device": "abacus"}, UsageError, "abacus"),
    "ruleset": ({"ruleset": "lax"}, UnknownName, "kernelbench"),
    "reward": ({"reward": "stage9"}, UnknownName, "stage"),
    "reward that needs speed": ({"reward": "kevin"}, UsageError, "not timed"),
    "device of the wrong type": ({"device": 3}, UsageError, "device 3 "),
    "max_turns": ({"max_turns": 0}, UsageError, "at least 1"),
    "max_turns as text": ({"max_turns": "4"}, UsageError, "whole number.*got '4'"),
    "max_turns with a fraction": ({"max_turns": 2.5}, UsageError, "whole number.*got 2.5"),
    "problems": ({"problems": "1-2,77"}, UnknownName, "'77'"),
    "split": ({"split": "dev"}, UnknownName, "train"),
    "empty split": ({"split": "representative", "problems": "2"}, ProblemError, "representative"),
    "stop_when": ({"stop_when": "bored"}, UnknownName, "correct"),
    "stop_when that needs speed": ({"stop_when": "speedup:2"}, UsageError, "not timed"),
    "examples": ({"examples": "many"}, UsageError, "many"),
    "gamma": ({"gamma": 1.5}, UsageError, r"\[0, 1\]"),
    "gamma as text": ({"gamma": "x"}, UsageError, "got 'x'"),
    "evaluator": ({"evaluator": "local"}, UsageError, "'local' is not an address of a verdict"),
    "unknown option": ({"langauge": "triton"}, UnknownName, "did you mean language.*ruleset"),
    "level": ({"level": 7}, UnknownName, "7"),
    "suite": ({"suite": "KernelBnch"}, UnknownName, "did you mean KernelBench"),
    "suite of the wrong type": ({"suite": None}, UnknownName, "known: KernelBench, Synthetic"),
    "evaluator's device": (
        {"evaluator": ScriptedEvaluator(), "device": "cuda:0"},
        UsageError,
        "the evaluator runs on 'cpu'",
    ),
    "evaluator's ruleset": (
        {"evaluator": ScriptedEvaluator(), "ruleset": "kernelbench"},
        UsageError,
        "the evaluator follows 'strict",
    ),
}


@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_fail_at_make(case: str, make: object) -> None:
    options, error, message = BAD_OPTIONS[case]
    with pytest.raises(error, match=message):
        make("KernelBench-L1-MultiTurn-v0", **options)  # type: ignore[operator]


def test_render_modes_autoreset_modes_and_numbers_of_slots() -> None:
    with pytest.raises(UnknownName, match="ansi, human"):
        KernelEnv("KernelBench", 1, render_mode="rgb_array")
    with pytest.raises(UnknownName, match="NextStep would discard"):
        gym.make_vec("KernelBench-L1-MultiTurn-v0", autoreset_mode="NextStep")
    with pytest.raises(UsageError, match="num_envs"):
        KernelVectorEnv(0, problems=[SAMPLE_PROBLEM])


def test_the_evaluator_decides_device_and_ruleset() -> None:
    evaluator = ScriptedEvaluator(device="cuda:1", ruleset="kernelbench")
    env = KernelEnv("KernelBench", 1, evaluator=evaluator, language="cuda", device="cuda")
    assert env.device == "cuda:1" and env.ruleset.name == "kernelbench"


def test_nothing_available_names_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgym.suites import kernelbench

    monkeypatch.delenv("KERNELBENCH_ROOT")
    monkeypatch.setattr(kernelbench, "ask_hub", lambda *_: "no route")
    monkeypatch.setattr(kernelbench, "DATASET", "kernelgym/no-such-dataset")
    with pytest.raises(ProblemError, match=r"KERNELBENCH_ROOT.*Hugging Face.*Synthetic"):
        gym.make("KernelBench-L1-MultiTurn-v0")


@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
def test_a_device_that_is_not_here_is_refused_at_once(
    make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = devices.CudaDevice("Test GPU", 80 << 30, (9, 0))
    monkeypatch.setattr(devices, "_ask_driver", lambda visible: (gpu, gpu))
    with pytest.raises(
        UsageError, match=r"'cuda:2' does not exist here; known: cpu, cuda:0 \(Test"
    ):
        make("Synthetic-L1-MultiTurn-v0", device="cuda:2")  # type: ignore[operator]
    make("Synthetic-L1-MultiTurn-v0", device="cuda:1").close()  # type: ignore[operator]


def test_a_device_that_somebody_elses_evaluator_judges_on_need_not_be_here() -> None:
    evaluator = ScriptedEvaluator(device="cuda:99")
    env = gym.make("Synthetic-L1-MultiTurn-v0", evaluator=evaluator)
    assert env.unwrapped.device == "cuda:99"  # type: ignore[attr-defined]


def test_the_language_of_references_is_not_for_kernels() -> None:
    with pytest.raises(UnsupportedLanguage, match="references"):
        gym.make("Synthetic-L1-MultiTurn-v0", language="torch")
