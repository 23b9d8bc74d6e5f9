"""tinker-cookbook's own rollouts play episodes, and its completer's answers are scripted."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest

from kernelgym import JudgeError, RemoteEvaluator
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Answer, Kernel, Problem, Verdict
from support import tiny
from support.byte_tokenizer import byte_tokenizer, read_chat
from support.scripted_answers import (
    NUMBERS,
    TURNS,
    ScriptedModel,
    essentials,
    expected,
    says,
)
from support.serve_process import serving

pytestmark = pytest.mark.framework("tinker-cookbook")

SETTINGS = (
    *("env.suite=Synthetic", "env.levels=[1]", f"env.problems={NUMBERS}", f"env.max_turns={TURNS}"),
    *("env.language=triton", "env.context=transcript", "reward.preset=stage2", "reward.gamma=1"),
    *("run.backend=tinker", "model.lora_rank=4", "evaluation.every=0", "sampling.group_size=2"),
    *("sampling.problems_per_step=5", "sampling.max_prompt_tokens=200000", "optimiser.steps=1"),
    *("env.context_tokens=100000", "sampling.max_new_tokens=20000"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model's tokenizer and shape, and a file without settings."""
    from transformers import Qwen3Config

    made = tmp_path_factory.mktemp("cookbook")
    words = byte_tokenizer()
    words.save_pretrained(made / "model")
    shape = tiny.model(len(words)).config.to_dict() | {"max_position_embeddings": 300_000}
    Qwen3Config.from_dict(shape).save_pretrained(made / "model")
    (made / "empty.yaml").write_text("{}\n")
    return made


def groups(monkeypatch: pytest.MonkeyPatch, folder: Path, judge: Any, *settings: str) -> list[Any]:
    """Return the groups of the only batch, as another process would read them."""
    from kernelgym_train.adapters import cookbook

    monkeypatch.setattr(cookbook, "run_evaluator", lambda config: judge)
    monkeypatch.setattr(cookbook, "_TABLES", {})
    builder = cookbook.EpisodeDatasetBuilder(
        config=str(folder / "empty.yaml"),
        settings=(*SETTINGS, f"model.id={folder / 'model'}", *settings),
    )
    train, _ = asyncio.run(builder())
    return [pickle.loads(pickle.dumps(group)) for group in train.get_batch(0)]


def completer(model: Any) -> Any:
    """Return one of the cookbook's completers, which answers by a scripted model."""
    from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs

    words = byte_tokenizer()

    class Scripted(TokenCompleter):
        async def __call__(self, model_input: Any, stop: Any, *, max_tokens: Any = None) -> Any:
            answer = model.answer(read_chat(words.decode(model_input.to_ints())))
            ids = words.encode(str(answer), add_special_tokens=False)
            cut_off = isinstance(answer, Answer) and answer.cut_off
            ids += [] if cut_off else [words.eos_token_id]
            reason = "length" if cut_off else "stop"
            return TokensWithLogprobs(ids, [0.0] * len(ids), stop_reason=reason)

    return Scripted()


def played(group: Any, model: Any, strategy: Any = None) -> Any:
    """Return the group of trajectories that the cookbook's rollout plays."""
    from tinker_cookbook.rl.rollouts import do_group_rollout

    return asyncio.run(do_group_rollout(group, completer(model), strategy))


def test_group_rollout_gives_the_scores_of_play_episode(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    wanted = {name: essentials(each) for name, each in expected().items()}
    found = {}
    for group in groups(monkeypatch, folder, ScriptedEvaluator()):
        first, second = played(group, ScriptedModel()).trajectories_G
        turns = [(each.logs["status"], each.metrics["score"]) for each in first.transitions]
        found[group.problem.id] = turns
        assert len(second.transitions) == len(turns)
    assert found == wanted


def test_rewards_of_a_group_are_the_returns_of_the_first_turns(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The cookbook adds the rewards of the turns up."""
    for group in groups(monkeypatch, folder, ScriptedEvaluator(), "reward.gamma=0.5"):
        found = played(group, ScriptedModel())
        trajectory = expected()[group.problem.id]
        assert found.get_total_rewards() == pytest.approx([trajectory.returns(0.5)[0]] * 2)


def test_judge_killed_in_mid_episode_raises_and_gives_no_reward(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    with serving(tmp_path) as (process, url), RemoteEvaluator(url, patience_s=2) as judge:

        class Killing(ScriptedModel):
            def answer(self, messages: Any) -> Answer:
                if len(messages) > 2:
                    process.kill()
                return Answer(says("wrong", len(messages)))

        (group,) = groups(monkeypatch, folder, judge, "env.problems=1")[:1]
        with pytest.raises(JudgeError, match="could not be judged"):
            played(group, Killing())


def test_episode_whose_judge_failed_is_played_anew_where_the_cookbook_retries(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    from tinker_cookbook.rl.rollout_strategy import RetryOnFailure

    failed: list[str] = []

    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        if not failed:
            failed.append(kernel.digest)
            return verdict("unavailable")
        return verdict("correct", speedup=1.5)

    class Right(ScriptedModel):
        def answer(self, messages: Any) -> Answer:
            return Answer(says("correct 1.5"))

    (group,) = groups(monkeypatch, folder, ScriptedEvaluator(judge), "env.max_turns=1")[:1]
    found = played(group, Right(), RetryOnFailure(max_retries=1))
    assert found.get_total_rewards() == [1.0, 1.0]
    assert [each.error_type for each in found.rollout_errors] == ["JudgeError"]
