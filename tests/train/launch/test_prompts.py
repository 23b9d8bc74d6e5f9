"""Prompts of a run: which one the setting asks for, and whether it fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym.prompts.short import ShortObserver, question
from kernelgym.records.export import read_before
from kernelgym.records.observer_settings import recorded_observer
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym_train.cli import main
from kernelgym_train.launch.assembly import TokenCounter, episode_rules, training_observer
from kernelgym_train.rollout.records import rollout_record
from support import tiny
from support.demo_rollouts import RIGHT, WRONG, rollout

SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a model without weights whose context has 512 tokens, and of a problem."""
    root = tmp_path_factory.mktemp("short")
    tiny.tokenizer().save_pretrained(root / "model")
    (root / "model" / "config.json").write_text(json.dumps(SHAPE))
    (root / "problems").mkdir()
    (root / "problems" / "one.py").write_text(SAMPLE_PROBLEM.source)
    return root


@pytest.mark.usefixtures("sizes_unknown")
@pytest.mark.parametrize(("prompt", "code"), [("short", 0), ("full", 2)])
def test_context_of_512_tokens_needs_the_short_prompt(
    folder: Path,
    prompt: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    given = (
        *(f"model.id={folder / 'model'}", f"env.suite={folder / 'problems'}", "env.max_turns=2"),
        *("sampling.max_prompt_tokens=400", "sampling.max_new_tokens=75", "evaluation.every=0"),
        *("reward.preset=sparse", f"env.prompt={prompt}"),
    )
    assert main(["--dry-run", *given]) == code
    said = capsys.readouterr()
    if code:
        assert "above sampling.max_prompt_tokens=400" in said.err and "env.examples" in said.err
    else:
        assert "prompt: short" in said.out and "context     512 tokens" in said.out


def test_episodes_of_the_short_prompt_are_read_back() -> None:
    config = tiny.config("env.prompt=short", "env.max_turns=2", "sampling.max_prompt_tokens=500")
    observer = training_observer(config, "cpu", TokenCounter(tiny.tokenizer()))
    assert isinstance(observer, ShortObserver)
    assert observer.observe(SAMPLE_PROBLEM) == question(SAMPLE_PROBLEM)
    record = rollout_record(rollout(0, [WRONG, RIGHT]), observer, episode_rules(config))
    assert record.observer["prompt"] == "short"
    assert isinstance(recorded_observer(record), ShortObserver)
    asked, answer, told = read_before(record, 1)
    assert answer.content == record.trajectory.turns[0].action
    assert told.content.startswith("Your kernel runs, but its output is wrong.")
    assert (asked,) == read_before(record, 0)
