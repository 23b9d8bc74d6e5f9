"""The vector environment, and Gymnasium's own vector environments around ours."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode

from kernelgym import judge
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.errors import UsageError
from kernelgym.prompts.observer import render
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply
from kernelgym.types import Answer, Job, Kernel, Problem, Verdict

PROBLEMS = tuple(
    Problem(f"own/{number}", "own", 0, str(number), SAMPLE_PROBLEM.source) for number in range(50)
)


def answer(says: str, number: int = 0) -> str:
    """Return an answer whose kernel tells the scripted evaluator what to say."""
    source = f"{SAMPLE_KERNELS['cpp'].source}\nNUMBER = {number}\n# verdict: {says}\n"
    return reply(Kernel(source, "cpp"))


class Counting(ScriptedEvaluator):
    """Remembers the size of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        self.batches.append(len(jobs))
        return super().evaluate_many(jobs)


def make(num_envs: int = 2, **options: Any) -> KernelVectorEnv:
    options = {"problems": PROBLEMS, "language": "cpp", "evaluator": Counting()} | options
    return KernelVectorEnv(num_envs, **options)


def test_spaces_and_shapes() -> None:
    envs = make(3)
    observations, infos = envs.reset(seed=4)
    assert isinstance(observations, tuple) and observations in envs.observation_space
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert infos["problem_id"].shape == (3,) and infos["_problem_id"].all()
    observations, rewards, terminations, truncations, _ = envs.step([answer("wrong")] * 3)
    assert observations in envs.observation_space
    assert (rewards.dtype, rewards.shape) == (np.float64, (3,))
    assert terminations.dtype == truncations.dtype == np.bool_
    envs.close()


def test_one_batch_per_step_and_only_kernels_in_it() -> None:
    envs = make(4)
    envs.reset()
    *_, infos = envs.step([answer("wrong"), "none", answer("timeout"), answer("wrong", 2)])
    assert list(infos["status"]) == ["wrong", "no_kernel", "timeout", "wrong"]
    envs.step([answer("wrong"), "none", answer("timeout"), "none"])
    evaluator = envs.evaluator
    assert isinstance(evaluator, Counting)
    # The second step repeats kernels these episodes have verdicts for: nothing is left to judge.
    assert evaluator.batches == [3]


def test_a_judge_that_raises_takes_no_turn() -> None:
    class Raising(Counting):
        def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
            if not self.batches:
                self.batches.append(0)
                raise RuntimeError("the judge is gone")
            return super().evaluate_many(jobs)

    envs = make(3, evaluator=Raising())
    before, _ = envs.reset(seed=1)
    answers = [answer("wrong"), "none", answer("timeout")]
    with pytest.raises(RuntimeError, match="the judge is gone"):
        envs.step(answers)
    assert [len(env.episode.turns) for env in envs.envs] == [0, 0, 0]
    observations, *_, infos = envs.step(answers)
    assert infos["turn"].tolist() == [1, 1, 1]
    assert list(infos["status"]) == ["wrong", "no_kernel", "timeout"]
    assert [render(messages) for messages in envs.messages] == list(observations) != list(before)


def test_slots_match_single_environments() -> None:
    answers = [[answer("wrong", 1), "none"], [answer("runtime_error", 2), answer("wrong", 3)]]
    envs = make(2)
    observations, _ = envs.reset(seed=11)
    for slot in range(2):
        single = gym.make(
            "kernelgym:KernelBench-L1-MultiTurn-v0",
            problems=PROBLEMS,
            language="cpp",
            evaluator=ScriptedEvaluator(),
        ).unwrapped
        assert single.reset(seed=11 + slot)[0] == observations[slot]
    for batch in answers:
        observations, rewards, *_ = envs.step(batch)
    single.reset(seed=12)
    for batch in answers:
        observation, reward, *_ = single.step(batch[1])
    assert observation == observations[1] and reward == rewards[1]


def test_same_step_autoreset() -> None:
    envs = make(2, max_turns=3)
    first, before = envs.reset(seed=3)
    observations, rewards, terminations, truncations, infos = envs.step(
        [answer("correct 2.0"), answer("wrong")]
    )
    assert terminations.tolist() == [True, False] and not truncations.any()
    assert rewards[0] > rewards[1]
    # Slot 0 already shows its next problem; the solved episode is under the final keys.
    assert infos["_final_info"].tolist() == infos["_final_obs"].tolist() == [True, False]
    assert "NUMBER" in infos["final_obs"][0] and infos["final_obs"][1] is None
    assert "NUMBER" not in observations[0] and "NUMBER" in observations[1]
    final = infos["final_info"]
    assert final["problem_id"][0] == before["problem_id"][0]
    assert final["turn_scores"][0] == (rewards[0],) and final["verdict"][0].speedup == 2.0
    assert infos["turn"].tolist() == [0, 1]
    assert infos["_verdict"].tolist() == [False, True]
    assert observations[0] != first[0]
    *_, infos = envs.step([answer("wrong", 1), answer("wrong", 2)])
    assert infos["turn"].tolist() == [1, 2] and "final_info" not in infos


def test_single_turn_wastes_no_answer() -> None:
    envs = make(2, max_turns=1)
    envs.reset()
    for number in range(5):
        *_, terminations, _, infos = envs.step([answer("wrong", number)] * 2)
        assert terminations.all()
        assert list(infos["final_info"]["status"]) == ["wrong", "wrong"]
    evaluator = envs.evaluator
    assert isinstance(evaluator, Counting) and evaluator.batches == [2] * 5


def test_autoreset_goes_through_the_problems() -> None:
    envs = make(2, max_turns=1)
    seen = []
    for _ in range(2):
        envs.reset(seed=6)
        stream = [tuple(envs.step(["none"] * 2)[4]["problem_id"]) for _ in range(10)]
        seen.append(stream)
    assert seen[0] == seen[1]
    assert len({first for first, _ in stream}) > 3 and len({second for _, second in stream}) > 3


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_infos_are_stable_whichever_slot_fails(order: tuple[int, int]) -> None:
    texts = ["no kernel", answer("correct 1.7")]
    envs = make(2, stop_when="never")
    _, before = envs.reset()
    *_, infos = envs.step([texts[i] for i in order])
    good, bad = order.index(1), order.index(0)
    assert infos["speedup"].dtype == np.float64 and infos["speedup"][good] == pytest.approx(1.7)
    assert infos["speedup"][bad] == 0.0 and infos["kernel_ms"].dtype == np.float64
    assert infos["compiled"].dtype == infos["valid"].dtype == np.bool_
    assert infos["trials"].dtype.kind == "i" and infos["trials"][good] == 4
    assert infos["status"][bad] == "no_kernel" and infos["status"][good] == "correct"
    parts = infos["reward_parts"]
    assert parts["penalty"][bad] < 0.0 < parts["correct"][good]
    assert parts["correct"].dtype == parts["penalty"].dtype == np.float64
    for key in (key for key in before if not key.startswith("_")):
        assert infos[f"_{key}"].all(), key
        if isinstance(before[key], np.ndarray):
            assert before[key].dtype == infos[key].dtype, key


def test_a_failing_judge_truncates_its_slot_only() -> None:
    envs = make(2)
    envs.reset()
    _, rewards, terminations, truncations, infos = envs.step(
        [answer("unavailable"), answer("wrong")]
    )
    assert truncations.tolist() == [True, False] and not terminations.any()
    assert rewards[0] == 0.0 and rewards[1] > 0.0
    assert not infos["final_info"]["valid"][0]
    assert infos["valid"].tolist() == [True, True]  # slot 0 is in its next episode


def test_disabled_autoreset() -> None:
    envs = make(3, autoreset_mode="Disabled", max_turns=1)
    _, before = envs.reset(seed=5)
    envs.step([answer("wrong")] * 3)
    with pytest.raises(ResetNeeded, match=r"\[0, 1, 2\].*reset_mask"):
        envs.step([answer("wrong")] * 3)
    options = {"reset_mask": np.array([True, False, True]), "problem_id": "own/7"}
    kept = copy.deepcopy(options)
    observations, infos = envs.reset(options=options)
    assert set(options) == set(kept)  # the caller's mapping is not changed
    assert infos["_problem_id"].tolist() == [True, False, True]
    assert list(infos["problem_id"][[0, 2]]) == ["own/7", "own/7"]
    assert "NUMBER" in observations[1] and "NUMBER" not in observations[0]
    with pytest.raises(ResetNeeded, match=r"\[1\]"):
        envs.step([answer("wrong")] * 3)
    _, infos = envs.reset(seed=5)
    assert list(infos["problem_id"]) == list(before["problem_id"])


@pytest.mark.parametrize(
    "mask", [np.zeros(2, dtype=np.bool_), np.ones(3, dtype=np.bool_), np.array([1, 0]), "all"]
)
def test_masks_that_make_no_sense(mask: Any) -> None:
    with pytest.raises(UsageError, match="reset_mask"):
        make(2).reset(options={"reset_mask": mask})


def test_seeds_and_shared_options() -> None:
    envs = make(3)
    _, one = envs.reset(seed=8)
    _, two = envs.reset(seed=[8, 9, 10])
    assert list(one["problem_id"]) == list(two["problem_id"])
    assert len(set(one["problem_id"])) > 1
    _, group = envs.reset(options={"problem_id": 3})  # a GRPO group shares its problem
    assert set(group["problem_id"]) == {"own/3"}
    with pytest.raises(UsageError, match="3 seeds"):
        envs.reset(seed=[1, 2])
    with pytest.raises(UsageError, match="kernel, problem_id"):
        envs.reset(options={"problem": 3})


@pytest.mark.parametrize(
    "actions", ["ab", ["one"], ["one", "two", "three"], ["one", None], None, [b"a", b"b"]]
)
def test_bad_batches_take_no_turn(actions: Any) -> None:
    envs = make(2)
    envs.reset()
    with pytest.raises(InvalidAction):
        envs.step(actions)
    *_, infos = envs.step(np.array(["none", "none"], dtype=object))
    assert infos["turn"].tolist() == [1, 1]


def test_stepping_before_reset() -> None:
    with pytest.raises(ResetNeeded, match="no episode"):
        make(2).step(["a", "b"])


def test_rendering(capsys: pytest.CaptureFixture[str]) -> None:
    envs = make(2, render_mode="ansi")
    envs.reset()
    frames = envs.render()
    assert frames is not None and len(frames) == 2 and "own/" in frames[0]
    assert capsys.readouterr().out == ""
    human = make(2, render_mode="human")
    human.reset()
    assert human.render() is None
    assert capsys.readouterr().out.count("turn 0 of 4") == 4


def test_the_shared_evaluator_is_taken_once_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[ScriptedEvaluator] = []

    def shared_evaluator(**_: Any) -> ScriptedEvaluator:
        taken.append(ScriptedEvaluator())
        return taken[-1]

    monkeypatch.setattr(judge, "shared_evaluator", shared_evaluator, raising=False)
    envs = KernelVectorEnv(4, problems=PROBLEMS)
    envs.reset()
    assert taken == []
    envs.step([reply(SAMPLE_KERNELS["triton"])] * 4)
    envs.step([reply(SAMPLE_KERNELS["triton"])] * 4)
    assert len(taken) == 1 and not taken[0].closed
    envs.close()
    assert taken[0].closed
    given = make(2)
    given.close()
    assert not given.evaluator.closed  # type: ignore[attr-defined]


def test_gymnasium_vector_wrappers() -> None:
    envs = gym.wrappers.vector.DictInfoToList(
        gym.wrappers.vector.RecordEpisodeStatistics(make(2, max_turns=1))
    )
    envs.reset()
    *_, infos = envs.step([answer("correct"), answer("wrong")])
    assert infos[0]["final_info"]["correct"] and not infos[1]["final_info"]["correct"]
    assert infos[0]["episode"]["l"] == 1


def test_gymnasium_sync_vector_env() -> None:
    envs = gym.make_vec(
        "kernelgym:KernelBench-L1-MultiTurn-v0",
        num_envs=2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        problems=PROBLEMS,
        evaluator=ScriptedEvaluator(),
        language="cpp",
    )
    envs.reset(seed=1)
    _, _, terminations, _, infos = envs.step((answer("correct 3"), "é none"))
    assert terminations.tolist() == [True, False]
    assert infos["final_info"]["speedup"][0] == pytest.approx(3.0)
    envs.close()


ASYNC = """
import gymnasium as gym
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply
from kernelgym.types import Answer

def one():
    return gym.make(
        "kernelgym:KernelBench-L1-MultiTurn-v0",
        problems=[SAMPLE_PROBLEM], evaluator=ScriptedEvaluator(),
    )

if __name__ == "__main__":
    envs = gym.vector.AsyncVectorEnv([one, one], shared_memory=False, context="spawn")
    observations, infos = envs.reset(seed=1)
    assert observations in envs.observation_space
    answers = (reply(SAMPLE_KERNELS["triton"]), "\\u201c\\u00e9\\U0001f600\\u201d")
    _, rewards, terminations, _, infos = envs.step(answers)
    assert terminations.tolist() == [True, False], terminations
    assert list(infos["status"]) == ["correct", "no_kernel"], infos
    envs.reset(seed=1)
    answers = (Answer(answers[0], cut_off=True), Answer(answers[0]))
    _, rewards, *_ = envs.step(answers)
    assert rewards[0] < rewards[1], "the mark did not reach the other process"
    envs.close()
    envs = gym.make_vec(
        "KernelBench-L1-MultiTurn-v0", 2, vectorization_mode="async",
        problems=[SAMPLE_PROBLEM], evaluator=ScriptedEvaluator(),
    )
    assert envs.shared_memory
    first, _ = envs.reset(seed=1)
    assert "class Model(nn.Module)" in first[0] and first in envs.observation_space
    strange = reply(SAMPLE_KERNELS["triton"]).replace("import torch", "# \\u201c\\ud800\\n", 1)
    second, *_ = envs.step(("nothing", strange))
    assert second in envs.observation_space and second != first, "the texts are old ones"
    assert "What became of turn 1" in second[0]
    assert "What became of turn 1" not in first[0], "an earlier batch was overwritten"
    envs.close()
"""


def test_gymnasium_async_vector_env(tmp_path: Path) -> None:
    script = tmp_path / "run_async.py"
    script.write_text(ASYNC)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("as_batch", [list, tuple, lambda some: np.array(some, dtype=object)])
def test_cut_off_answer_keeps_its_mark_in_a_batch(as_batch) -> None:
    envs = make(2, stop_when="never")
    envs.reset()
    envs.step(as_batch([Answer(answer("wrong"), cut_off=True), answer("wrong")]))
    defects = [env.episode.turns[0].reply.defects for env in envs.envs]
    assert defects == [("cut_off",), ()]


def test_cut_off_answer_keeps_its_mark_in_sync_mode() -> None:
    envs = gym.make_vec(
        "kernelgym:KernelBench-L1-MultiTurn-v0", 2, vectorization_mode="sync", problems=PROBLEMS,
        evaluator=ScriptedEvaluator(), language="cpp", stop_when="never",
    )  # fmt: skip
    envs.reset(seed=1)
    envs.step((Answer(answer("wrong"), cut_off=True), Answer(answer("wrong"))))
    defects = [env.unwrapped.episode.turns[0].reply.defects for env in envs.envs]
    assert defects == [("cut_off",), ()]
    envs.close()
