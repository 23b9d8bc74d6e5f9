"""SkyRL's own generator plays episodes, and its engine's answers are scripted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import typing
from pathlib import Path
from typing import Any

import pytest

from kernelgym import JudgeError, RemoteEvaluator, UsageError
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Answer
from support.byte_tokenizer import byte_tokenizer, read_chat
from support.scripted_answers import (
    ENV,
    OPTIONS,
    PROBLEMS,
    TURNS,
    ScriptedModel,
    essentials,
    expected,
    says,
)
from support.serve_process import serving

pytestmark = pytest.mark.framework("skyrl")

NAME = "kernelgym"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let SkyRL, which wants Python 3.12, be imported on 3.11; forget the registered names."""
    if sys.version_info < (3, 12):
        import typing_extensions

        # Pydantic refuses typing.TypedDict before Python 3.12, and skyrl's types use it.
        monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)
    yield
    import skyrl_gym

    if NAME in skyrl_gym.envs.registration.registry:
        skyrl_gym.envs.registration.deregister(NAME)


def registered(evaluator: Any, **options: Any) -> Any:
    """Register the environment of the script."""
    from kernelgym.adapters.skyrl import register

    return register(NAME, ENV, **{**OPTIONS, "evaluator": evaluator} | options)


def engine(model: Any, words: Any) -> Any:
    """Return one of SkyRL's engines, which answers by a scripted model."""
    from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface

    async def generate(self: Any, batch: Any, model: Any = None) -> dict[str, Any]:
        (ids,) = batch["prompt_token_ids"]
        answer = self.scripted.answer(read_chat(words.decode(ids)))
        made = words.encode(str(answer), add_special_tokens=False)
        cut_off = isinstance(answer, Answer) and answer.cut_off
        return {
            "responses": [str(answer)],
            "response_ids": [made if cut_off else [*made, words.eos_token_id]],
            "stop_reasons": ["length" if cut_off else "stop"],
        }

    async def finish_session(self: Any, session_id: str) -> None:
        self.finished += 1

    left = {name: None for name in InferenceEngineInterface.__abstractmethods__}
    members = {**left, "generate": generate, "finish_session": finish_session}
    made = type("ScriptedEngine", (InferenceEngineInterface,), members)()
    made.scripted, made.finished = model, 0
    return made


def generated(model: Any, rows: Any, *, threads: int = 16, **settings: Any) -> tuple[Any, Any]:
    """Return what SkyRL's generator makes of these rows, and the engine that it asked."""
    from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
    from skyrl.train.generators.base import TrajectoryID
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

    words = byte_tokenizer()
    asked = engine(model, words)
    config = GeneratorConfig(**{"max_turns": TURNS, "max_input_length": 200_000} | settings)
    gym_config = SkyRLGymConfig(max_env_workers=threads)
    generator = SkyRLGymGenerator(config, gym_config, asked, words)
    batch = {
        "prompts": [row["prompt"] for row in rows],
        "env_classes": [row["env_class"] for row in rows],
        "env_extras": [{"problem_id": row["problem_id"]} for row in rows],
        "trajectory_ids": [TrajectoryID(row["problem_id"], 0) for row in rows],
        "sampling_params": None,
        "batch_metadata": None,
    }
    return asyncio.run(generator.generate(batch, disable_tqdm=True)), asked


WANTED = {
    name: [score for _, score in essentials(played)]
    for name, played in expected(marks_cut_off=False).items()
}


def rewards_by_turn(output: Any, row: int) -> list[float]:
    """Return the rewards on the last token of each answer."""
    mask, rewards = output["loss_masks"][row], output["rewards"][row]
    ends = [i for i, kept in enumerate(mask) if kept and not (mask[i + 1 :] or [0])[0]]
    assert sum(map(bool, rewards)) == sum(bool(rewards[end]) for end in ends)
    return [rewards[end] for end in ends]


def test_generator_gives_the_scores_of_play_episode() -> None:
    episodes = registered(ScriptedEvaluator(workers=16))
    rows = episodes.rows()
    assert [row["problem_id"] for row in rows] == [each.id for each in PROBLEMS.values()]
    output, asked = generated(ScriptedModel(), rows)
    found = {row["problem_id"]: rewards_by_turn(output, i) for i, row in enumerate(rows)}
    assert {name: pytest.approx(scores) for name, scores in WANTED.items()} == found
    assert asked.finished == len(rows)
    metrics = output["rollout_metrics"]
    assert metrics["environment/solved"] == pytest.approx(3 / 5)


def test_rows_are_read_by_the_data_set(tmp_path: Path) -> None:
    from skyrl.train.dataset import PromptDataset

    rows = registered(ScriptedEvaluator()).rows()
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = PromptDataset([str(path)], byte_tokenizer(), 100_000, num_workers=1)
    prompt, env_class, extras, _ = found[1]
    assert (prompt, env_class) == (rows[1]["prompt"], NAME)
    assert extras == {"problem_id": rows[1]["problem_id"]} and len(found) == len(rows)


def test_generator_masks_all_but_the_answers() -> None:
    rows = registered(ScriptedEvaluator()).rows()[:1]
    output, _ = generated(ScriptedModel(), rows)
    words = byte_tokenizer()
    ids, mask = output["response_ids"][0], output["loss_masks"][0]
    learned = words.decode([each for each, kept in zip(ids, mask, strict=True) if kept])
    assert learned == f"{says('wrong')}<|im_end|>{says('correct 1.5')}<|im_end|>"
    others = words.decode([each for each, kept in zip(ids, mask, strict=True) if not kept])
    assert "<|im_start|>user" in others and "class ModelNew" not in others


def test_judge_killed_in_mid_episode_fails_the_batch_without_a_reward(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, url), RemoteEvaluator(url, patience_s=2) as judge:

        class Killing(ScriptedModel):
            def answer(self, messages: Any) -> Answer:
                if len(messages) > 2:
                    process.kill()
                return Answer(says("wrong", len(messages)))

        rows = registered(judge, problems="1").rows()
        with pytest.raises(JudgeError, match="no fault of the kernel"):
            generated(Killing(), rows)


def test_full_context_ends_the_episode_with_its_score() -> None:
    rows = registered(ScriptedEvaluator(), problems="4", context_tokens=1).rows()
    output, _ = generated(ScriptedModel(), rows)
    first = WANTED[rows[0]["problem_id"]][0]
    assert rewards_by_turn(output, 0) == [pytest.approx(first)]


def test_other_number_of_turns_is_refused() -> None:
    rows = registered(ScriptedEvaluator(), problems="1").rows()
    with pytest.raises(UsageError, match=r"generator\.max_turns is 5.*have 3"):
        generated(ScriptedModel(), rows, max_turns=5)


def test_context_that_rewrites_messages_is_refused() -> None:
    with pytest.raises(UsageError, match="transcript"):
        registered(ScriptedEvaluator(), context="last")


def test_steps_of_sixteen_episodes_are_judged_side_by_side() -> None:
    at_once = most = 0
    lock, full = threading.Lock(), threading.Event()

    def held(problem: Any, kernel: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once == 16:
                full.set()
        full.wait(20.0)
        with lock:
            at_once -= 1
        return verdict("correct")

    class Once(ScriptedModel):
        def answer(self, messages: Any) -> Answer:
            return Answer(says("correct"))

    rows = registered(ScriptedEvaluator(held, workers=16), problems="1-16").rows()
    output, _ = generated(Once(), rows)
    assert most == 16 and len(output["rewards"]) == 16


def test_example_plays_with_the_real_judge(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "18_skyrl.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong, right, metrics = done.stdout.splitlines()[-3:]
    assert wrong.endswith("done False, 4 messages") and right.endswith("done True, 5 messages")
    assert "'solved': True" in metrics and (tmp_path / "train.jsonl").is_file()
