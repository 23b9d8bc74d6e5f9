"""The wrappers that write episodes to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from kernelgym.envs.recording import RecordTrajectories, RecordVectorTrajectories
from kernelgym.errors import UsageError
from kernelgym.prompts.observer import render
from kernelgym.records.export import read_before
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply
from kernelgym.types import Kernel, Problem, text_digest

PROBLEMS = tuple(
    Problem(f"own/{number}", "own", 0, str(number), SAMPLE_PROBLEM.source) for number in range(6)
)
GYM_ID = "kernelgym:KernelBench-L1-MultiTurn-v0"


def answer(says: str, number: int = 0) -> str:
    source = f"{SAMPLE_KERNELS['cpp'].source}\nNUMBER = {number}\n# verdict: {says}\n"
    return reply(Kernel(source, "cpp"))


def options(**more: Any) -> dict[str, Any]:
    return {"problems": PROBLEMS, "language": "cpp", "evaluator": ScriptedEvaluator()} | more


def make(path: Path, **more: Any) -> gym.Env[str, str]:
    keep = {name: more.pop(name) for name in ("source", "writer") if name in more}
    return RecordTrajectories(gym.make(GYM_ID, **options(**more)), path, **keep)


def lines(path: Path) -> list[EpisodeRecord]:
    return list(read_records(path)) if path.exists() else []


def test_an_episode_is_written_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path, reward="stage1", max_turns=3, examples="zero_shot")
    start = Kernel("START = 1  # ModelNew\n", "cpp")
    env.reset(seed=1, options={"problem_id": "own/2", "kernel": start})
    env.step(answer("wrong", 1))
    env.step("nothing")
    assert lines(path) == []
    env.step(answer("correct 2.0", 2))
    (record,) = lines(path)
    core: Any = env.unwrapped
    assert record.trajectory == core.episode.trajectory
    assert record.trajectory.ended == "solved" and record.trajectory.horizon == 3
    assert record.trajectory.problem == PROBLEMS[2]
    assert (record.language, record.device, record.writer) == ("cpp", "cpu", "env")
    assert record.ruleset == core.ruleset.label
    assert (record.reward, record.stop_when, record.start) == ("stage1", "correct", start.source)
    env.close()
    assert len(lines(path)) == 1


def test_what_was_read_can_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path, max_turns=3, examples="zero_shot", stop_when="never")
    shown = [env.reset(seed=1, options={"kernel": "START = 1  # ModelNew\n"})[0]]
    for number in range(3):
        shown.append(env.step(answer("wrong", number))[0])
    (record,) = lines(path)
    assert record.observations == tuple(text_digest(text) for text in shown[:-1])
    assert [render(read_before(record, turn)) for turn in range(3)] == shown[:-1]


def test_episodes_that_were_left_are_written_as_cut(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path)
    env.reset(seed=1)
    env.reset(seed=2)  # nothing was played: nothing is written
    env.step(answer("wrong", 1))
    env.reset(seed=3)
    env.step(answer("wrong", 2))
    env.step(answer("wrong", 3))
    env.close()
    env.close()
    assert [(len(r.trajectory.turns), r.trajectory.ended) for r in lines(path)] == [
        (1, "cut"), (2, "cut"),
    ]  # fmt: skip


def test_a_time_limit_and_a_failing_judge_cut(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path, max_episode_steps=2)
    env.reset(seed=1)
    env.step(answer("wrong", 1))
    *_, terminated, truncated, _ = env.step(answer("wrong", 2))
    assert truncated and not terminated
    env.reset()
    env.step(answer("unavailable"))
    found = [(r.trajectory.ended, r.trajectory.valid) for r in lines(path)]
    assert found == [("cut", True), ("cut", False)]


def test_a_reset_that_is_refused_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path, max_turns=2)
    env.reset(seed=1)
    env.step(answer("wrong", 1))
    with pytest.raises(UsageError):
        env.reset(options={"problem_id": "own/99"})
    env.step(answer("wrong", 2))
    (record,) = lines(path)
    assert len(record.trajectory.turns) == 2 and record.trajectory.ended == "budget"


def test_sources_can_be_left_out_and_writers_named(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path, max_turns=1, source=False, writer="beam search")
    env.reset()
    env.step("nothing")
    (record,) = lines(path)
    assert not record.has_source and record.problem_digest == SAMPLE_PROBLEM.digest
    assert record.writer == "beam search"


def test_the_wrapper_can_be_made_again_from_its_spec(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = make(path, max_turns=1)
    assert env.spec is not None
    again = gym.make(env.spec)
    again.reset()
    again.step("nothing")
    assert len(lines(path)) == 1


def test_other_environments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of kernelgym"):
        RecordTrajectories(gym.make("CartPole-v1"), tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="put RecordTrajectories around"):
        RecordVectorTrajectories(gym.make_vec("CartPole-v1"), tmp_path / "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_every_slot_of_a_vector_environment_is_written(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "played.jsonl"
    inner = gym.make_vec(GYM_ID, num_envs=2, autoreset_mode=mode, **options(max_turns=2))
    envs = RecordVectorTrajectories(inner, path)  # type: ignore[arg-type]
    observations, _ = envs.reset(seed=4)
    first = envs.step([answer("correct", 1), answer("wrong", 2)])
    assert [r.trajectory.ended for r in lines(path)] == ["solved"]
    if mode == "Disabled":
        observed, _ = envs.reset(options={"reset_mask": np.array([True, False])})
        assert len(lines(path)) == 1  # slot 0 was written already, slot 1 plays on
    else:
        observed = first[0]
    envs.step([answer("wrong", 3), answer("wrong", 4)])
    envs.close()
    records = lines(path)
    assert [(len(r.trajectory.turns), r.trajectory.ended) for r in records] == [
        (1, "solved"), (2, "budget"), (1, "cut"),
    ]  # fmt: skip
    solved, budget, cut = records
    assert solved.observations == (text_digest(observations[0]),)
    assert budget.observations[0] == text_digest(observations[1])
    assert cut.observations == (text_digest(observed[0]),)
    for record in records:
        for turn in range(len(record.trajectory.turns)):
            read_before(record, turn)  # as was read, or it raises


def test_a_vector_reset_of_all_cuts_what_was_played(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    envs = RecordVectorTrajectories(gym.make_vec(GYM_ID, num_envs=2, **options()), path)  # type: ignore[arg-type]
    envs.reset(seed=1)
    envs.step([answer("correct", 1), answer("wrong", 2)])
    envs.reset(seed=1)
    assert [r.trajectory.ended for r in lines(path)] == ["solved", "cut"]
