"""GEM's own vector environments and wrappers play episodes."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from kernelgym import JudgeError, RemoteEvaluator, UsageError
from kernelgym.testing import ScriptedEvaluator
from support.byte_tokenizer import byte_tokenizer, read_chat
from support.scripted_answers import (
    ENV,
    OPTIONS,
    PROBLEMS,
    ScriptedModel,
    essentials,
    expected,
    says,
)
from support.serve_process import serving

pytestmark = pytest.mark.framework("gem")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def name() -> Any:
    """Return the name of the environment of the script, registered with a scripted judge."""
    yield from registration(ScriptedEvaluator(workers=16))


def registration(evaluator: Any, **options: Any) -> Any:
    from gem.envs.registration import ENV_REGISTRY

    from kernelgym.adapters.gem import register

    made = register(ENV, **{**OPTIONS, "evaluator": evaluator} | options)
    try:
        yield made
    finally:
        del ENV_REGISTRY[made]


def vector(name: str, count: int, *, seed: int = 0, threads: bool = True) -> Any:
    """Return GEM's vector environment, whose observations are chats by a template."""
    import gem
    from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
    from gem.wrappers.observation_wrapper import ObservationWrapper

    wrappers = [partial(ObservationWrapper, tokenizer=byte_tokenizer()), EpisodeTrackingWrapper]
    return gem.make_vec([name] * count, wrappers, async_mode=threads, seed=seed)


@pytest.mark.parametrize("threads", [True, False])
def test_vector_env_gives_the_scores_of_play_episode(name: str, threads: bool) -> None:
    """Play until every problem of the script was played, all environments side by side."""
    envs, model = vector(name, 12, threads=threads), ScriptedModel()
    shown, infos = envs.reset(seed=5)
    scores: list[list[float]] = [[] for _ in infos]
    problems = [info["problem_id"] for info in infos]
    found: dict[str, list[float]] = {}
    for _ in range(40):
        answers = [str(model.answer(read_chat(text))) for text in shown]
        shown, rewards, ended, cut, infos = envs.step(answers)
        assert not cut.any()
        for place, info in enumerate(infos):
            scores[place].append(float(rewards[place]))
            if ended[place]:
                assert found.setdefault(problems[place], scores[place]) == scores[place]
                scores[place], problems[place] = [], info["problem_id"]
        if len(found) == len(PROBLEMS):
            break
    played = expected(marks_cut_off=False)
    assert found == {
        name: pytest.approx([score for _, score in essentials(each)])
        for name, each in played.items()
    }


def test_step_tells_the_verdict(name: str) -> None:
    import gem

    env = gem.make(name, seed=3)
    first, info = env.reset()
    assert "class Model" in first and info["turn"] == 0
    news, reward, ended, cut, info = env.step("no kernel")
    assert reward < 0.0 and not (ended or cut) and info["status"] == "no_kernel"
    assert news and news not in first
    _, last, ended, cut, info = env.step(says("correct 1.5"))
    assert last > 0.0 and (ended, cut) == (True, False)
    assert info["verdict"]["status"] == "correct" and info["turn_scores"] == [reward, last]
    with pytest.raises(ResetNeeded):
        env.step(says("correct"))


def test_context_that_rewrites_messages_is_shown_whole() -> None:
    import gem

    for name in registration(ScriptedEvaluator(), context="last"):
        env = gem.make(name, seed=3)
        first, _ = env.reset()
        shown, *_ = env.step(says("wrong"))
        assert first[:2000] == shown[:2000] and "# verdict: wrong" in shown


def test_full_context_is_truncation() -> None:
    import gem

    for name in registration(ScriptedEvaluator(), context_tokens=1):
        env = gem.make(name)
        env.reset()
        _, reward, ended, cut, info = env.step(says("wrong"))
        assert (ended, cut) == (False, True) and reward > 0.0 and info["ended"] == "cut"


def test_same_seed_gives_the_same_problems(name: str) -> None:
    import gem

    def drawn(env: Any, seed: int | None = None) -> list[str]:
        return [env.reset(seed)[1]["problem_id"], *(env.reset()[1]["problem_id"] for _ in range(9))]

    first = drawn(gem.make(name, seed=7))
    assert drawn(gem.make(name, seed=7)) == first == drawn(gem.make(name), 7)
    assert len(set(first)) > 1


def test_spawned_env_of_the_same_state_goes_on_by_itself() -> None:
    import gem

    judge = ScriptedEvaluator()
    for name in registration(judge):
        env = gem.make(name, seed=3)
        with pytest.raises(UsageError, match="reset"):
            env.step("?")
        env.reset()
        env.step(says("wrong"))
        twin = env.spawn(same_state=True)
        assert twin.step(says("correct 1.5"))[1:4] == env.step(says("correct 1.5"))[1:4]
        assert len(judge.judged) == 3, "the turn that was copied is not judged anew"
        assert env.reset()[1]["problem_id"] == twin.reset()[1]["problem_id"]
        other = env.spawn(max_turns=1)
        other.reset()
        assert other.step(says("wrong"))[2] is True
        with pytest.raises(UsageError, match="same_state"):
            env.spawn(same_state=True, max_turns=1)


def test_judge_killed_in_mid_episode_raises_and_the_envs_can_be_reset(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, url), RemoteEvaluator(url, patience_s=2) as judge:
        for name in registration(judge):
            envs = vector(name, 2)
            envs.reset(seed=1)
            envs.step([says("wrong")] * 2)
            process.kill()
            with pytest.raises(JudgeError, match="no fault of the kernel"):
                envs.step([says("correct")] * 2)
            _, infos = envs.reset(seed=1)
            assert [info["turn"] for info in infos] == [0, 0]


def test_example_plays_with_the_real_judge(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "17_gem.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert first.endswith("ended [False, True]") and second.endswith("ended [True, False]")
