"""TRL's own trainer plays the episodes of an example, and its model's answers are scripted."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kernelgym import JudgeError
from kernelgym.adapters.live_episode import EpisodeFactory
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Kernel
from support import tiny
from support.byte_tokenizer import byte_tokenizer
from support.scripted_answers import CASES, ENV, OPTIONS, PROBLEMS, expected, says

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "16_trl_environment.py"
RIGHT = "wrong_then_right"


@pytest.fixture(scope="module")
def example() -> Any:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("trl_environment", EXAMPLE)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def factory(judge: Any, **options: Any) -> EpisodeFactory:
    return EpisodeFactory(ENV, **{**OPTIONS, "evaluator": judge, "problems": "1"} | options)


def source(answer: str) -> str:
    """Return the kernel of a scripted answer."""
    found = re.search(r"```python\n(.*?)```", answer, re.DOTALL)
    return found.group(1) if found else ""


def call(kernel: str) -> str:
    """Return a call of the tool as Qwen3 writes it."""
    made = json.dumps({"name": "submit", "arguments": {"kernel": kernel}})
    return f"<tool_call>\n{made}\n</tool_call><|im_end|>"


def trainer(example: Any, episodes: EpisodeFactory, answers: list[str], folder: Path) -> Any:
    """Return TRL's trainer of a tiny model whose answers are replaced by these, turn by turn."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template

    words = byte_tokenizer()
    words.chat_template = qwen3_chat_template
    shape = tiny.model(len(words)).config.to_dict() | {"max_position_embeddings": 100_000}
    settings = {"num_generations": 2, "per_device_train_batch_size": 2, "max_steps": 1}
    made = GRPOTrainer(
        model=Qwen3ForCausalLM(Qwen3Config.from_dict(shape)),
        processing_class=words,
        args=GRPOConfig(
            str(folder),
            max_completion_length=30_000,
            report_to=[],
            logging_steps=1,
            use_cpu=True,
            save_strategy="no",
            **settings,
        ),
        train_dataset=example.dataset(episodes),
        environment_factory=example.environment(episodes),
    )

    def generated(prompt_ids: Any, *_: Any, **__: Any) -> Any:
        texts = [words.decode(ids) for ids in prompt_ids]
        turns = [text.count("<tool_response>") for text in texts]
        said = [answers[turn] if turn < len(answers) else "Done.<|im_end|>" for turn in turns]
        return [words.encode(text, add_special_tokens=False) for text in said], None

    made._generate_single_turn = generated
    return made


def test_trainer_gives_the_best_score_of_play_episode(example: Any, tmp_path: Path) -> None:
    judge = ScriptedEvaluator()
    answers = [call(source(text)) for text in CASES[RIGHT]]
    made = trainer(example, factory(judge), answers, tmp_path)
    made.train()
    (logged,) = [row for row in made.state.log_history if "reward" in row]
    assert logged["rewards/KernelTask/mean"] == max(expected()[PROBLEMS[RIGHT].id].scores)
    assert len(judge.judged) == 4 and logged["tools/call_frequency"] == 2.0


def test_failed_judge_stops_the_trainer_and_is_no_reward(example: Any, tmp_path: Path) -> None:
    answers = [call(source(says("wrong"))), call(source(says("unavailable")))]
    made = trainer(example, factory(ScriptedEvaluator()), answers, tmp_path)
    with pytest.raises(JudgeError, match="no fault of the kernel"):
        made.train()


def test_task_gives_feedback_until_the_episode_is_over(example: Any) -> None:
    judge = ScriptedEvaluator()
    task = example.environment(factory(judge))()
    assert "class Model" in task.reset(problem_id=PROBLEMS[RIGHT].id, other=1)
    assert "Call the tool" not in task.submit(source(says("wrong")))
    assert task.get_reward() == expected()[PROBLEMS[RIGHT].id].scores[0]
    task.submit(source(says("correct 1.5")))
    assert task.submit("more") == "The episode is over." and len(judge.judged) == 2
    assert [job.kernel for job in judge.judged] == [
        Kernel(source(text), "triton") for text in CASES[RIGHT]
    ]
    task.reset(problem_id=PROBLEMS[RIGHT].id)
    assert task.get_reward() < 0.0, "an answer without a kernel"
