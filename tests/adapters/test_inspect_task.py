"""Inspect's own `eval` plays episodes, and its log reader reads what came of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelgym import KernelEnv, RemoteEvaluator
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Answer
from support.chat_server import chat_server
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

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.framework("inspect")


def mock(model: ScriptedModel) -> Any:
    """Return Inspect's mock model that answers by the script."""
    return get_mock(lambda messages, *_: output(model.answer(messages)))


def get_mock(answered: Any) -> Any:
    """Return Inspect's mock model that answers by a function."""
    from inspect_ai.model import get_model

    return get_model("mockllm/model", custom_outputs=answered, memoize=False)


def output(answer: str) -> Any:
    """Return an answer as Inspect's models give it."""
    from inspect_ai.model import ModelOutput, ModelUsage

    reason = "max_tokens" if isinstance(answer, Answer) and answer.cut_off else "stop"
    made = ModelOutput.from_content("mockllm/model", str(answer), stop_reason=reason)
    # Without it, the mock model counts tokens with a tokenizer that it downloads.
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made


def evaluated(model: Any, folder: Any, evaluator: Any, **options: Any) -> Any:
    """Return the log that Inspect's reader finds after Inspect's `eval`."""
    from inspect_ai import eval as inspect_eval
    from inspect_ai.log import list_eval_logs, read_eval_log

    from kernelgym.adapters.inspect_task import kernels

    environment = {**OPTIONS, "evaluator": evaluator} | options.pop("environment", {})
    task = kernels(ENV, **environment)
    inspect_eval(task, model, log_dir=str(folder), display="none", **options)
    (found,) = list_eval_logs(str(folder))
    return read_eval_log(found)


def scores(log: Any) -> dict[str, list[tuple[str, float]]]:
    """Return status and score of each turn, by problem."""
    made = {}
    for sample in log.samples:
        (found,) = sample.scores.values()  # named with or without the package's name
        metadata = found.metadata
        statuses = [verdict["status"] for verdict in metadata["verdicts"]]
        made[sample.id] = list(zip(statuses, metadata["scores"], strict=True))
    return made


WANTED = {name: essentials(played) for name, played in expected().items()}


def test_eval_with_the_mock_model_gives_the_scores_of_play_episode(tmp_path: Path) -> None:
    log = evaluated(mock(ScriptedModel()), tmp_path, ScriptedEvaluator())
    assert log.status == "success" and scores(log) == WANTED
    sample = next(each for each in log.samples if each.id == PROBLEMS["wrong_then_right"].id)
    found = sample.scores["judged"]
    assert found.value["solved"] == found.value["correct"] == 1.0
    assert (found.value["speedup"], found.value["turns"]) == (1.5, 2.0)
    assert "class ModelNew" in found.answer and "orrect" in found.explanation
    assert [each.role for each in sample.messages] == ["system", *["user", "assistant"] * 2]
    means = {each.name: each.metrics["mean"].value for each in log.results.scores}
    assert means["solved"] == pytest.approx(3 / 5)


def test_cut_off_answer_is_recorded_as_cut_off(tmp_path: Path) -> None:
    log = evaluated(mock(ScriptedModel()), tmp_path, ScriptedEvaluator())
    sample = next(each for each in log.samples if each.id == PROBLEMS["cut_off"].id)
    told = sample.scores["judged"].metadata
    assert told["info"]["status"] == "no_kernel"
    whole = ScriptedModel(instead={"cut_off": says("wrong")})
    other = evaluated(mock(whole), tmp_path / "whole", ScriptedEvaluator())
    assert scores(other)[sample.id][0][1] > scores(log)[sample.id][0][1]


def test_context_that_rewrites_messages_is_sent_whole(tmp_path: Path) -> None:
    seen: list[Any] = []

    def answered(messages: Any, *_: Any) -> Any:
        seen.append(messages)
        return output(says("wrong" if len(seen) == 1 else "correct"))

    log = evaluated(
        get_mock(answered),
        tmp_path,
        ScriptedEvaluator(),
        environment={"problems": "1", "context": "last"},
    )
    assert [status for status, _ in scores(log)[log.samples[0].id]] == ["wrong", "correct"]
    env = KernelEnv(
        "Synthetic",
        1,
        **{**OPTIONS, "problems": "1"},
        context="last",
        evaluator=ScriptedEvaluator(),
    )
    env.reset()
    env.step(says("wrong"))
    assert [each.text for each in seen[1]] == [each.content for each in env.messages]


def test_limit_of_inspect_leaves_the_score_of_the_turns_before(tmp_path: Path) -> None:
    log = evaluated(mock(ScriptedModel()), tmp_path, ScriptedEvaluator(), message_limit=4)
    assert log.status == "success"
    assert scores(log) == {name: turns[:1] for name, turns in WANTED.items()}


@pytest.mark.parametrize("retries", [0, 1])
def test_judge_killed_in_mid_episode_is_an_error_and_no_score(tmp_path: Path, retries: int) -> None:
    with serving(tmp_path / "state") as (process, url), RemoteEvaluator(url, patience_s=2) as judge:
        asked = []

        def answered(messages: Any, *_: Any) -> Any:
            asked.append(len(messages))
            if len(messages) > 2:
                process.kill()
            return output(says("wrong", len(messages)))

        log = evaluated(
            get_mock(answered),
            tmp_path / "logs",
            judge,
            environment={"problems": "1"},
            retry_on_error=retries,
        )
    (sample,) = log.samples
    assert log.status == "error" and not sample.scores
    assert (
        "JudgeError" in sample.error.traceback and "no fault of the kernel" in sample.error.message
    )
    assert asked == [2, 4, *[2] * retries]
    assert len(sample.error_retries or ()) == retries


def test_command_line_with_a_server_that_fails_once_gives_the_same_scores(tmp_path: Path) -> None:
    """Inspect's program finds the task by its name; its client of OpenAI's API asks again."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    model = ScriptedModel()
    program = Path(sys.executable).with_name("inspect")
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    with chat_server(reply=model.reply) as server, serving(tmp_path / "state") as (_, url):
        settings = {"env_id": ENV, **OPTIONS, "evaluator": url}
        command = [program, "eval", "kernelgym/kernels", "--log-dir", str(tmp_path / "logs")]
        command += ["--model", "openai/kernel-writer", "--model-base-url", server.url]
        command += ["-M", "responses_api=false", "--display", "none"]
        command += [part for name, value in settings.items() for part in ("-T", f"{name}={value}")]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert model.failures["server_fails_once"] == 1
    (found,) = list_eval_logs(str(tmp_path / "logs"))
    log = read_eval_log(found)
    assert log.status == "success" and scores(log) == WANTED


def test_example_ends_solved(tmp_path: Path) -> None:
    """The real judge judges its two kernels."""
    command = [sys.executable, str(EXAMPLES / "13_inspect.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'solved': 1.0" in done.stdout.splitlines()[-1], done.stdout
