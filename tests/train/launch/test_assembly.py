"""Parts of a run, from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelgym import CachedEvaluator, LocalEvaluator, Problem, UsageError, judging_memory
from kernelgym.devices import CONTEXT_BYTES
from kernelgym.judging_memory import judging_bytes
from kernelgym.suites.known_memory import needed_bytes
from kernelgym_train.config.config import Config
from kernelgym_train.config.settings import read_settings
from kernelgym_train.launch.assembly import (
    TokenCounter,
    episode_rules,
    held_out_problems,
    run_evaluator,
    training_observer,
    training_problems,
    with_memory_budget,
)
from kernelgym_train.launch.memory import estimate_memory
from kernelgym_train.launch.reference_sizes import ReferenceSizes, reference_sizes
from support import tiny
from support.small_forms import write_checkout

SYNTHETIC = ("env.suite=Synthetic", "env.split=rl", "evaluation.split=heldout")

LARGE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 256, bias=False)

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(8, 64)]


def get_init_inputs():
    return []
"""


def problem(result: str) -> Problem:
    return Problem(f"T/L1/{result}", "T", 1, "1", LARGE.format(result=result))


def test_problems_are_those_of_suite_level_and_split() -> None:
    both = training_problems(tiny.config(*SYNTHETIC, "env.levels=[1, 3]"))
    assert {each.level for each in both} == {1, 3}
    few = held_out_problems(tiny.config(*SYNTHETIC, "env.levels=[2]", "evaluation.limit=4"))
    assert len(few) == 4 and {each.level for each in few} == {2}
    assert not {each.digest for each in both} & {each.digest for each in few}
    with pytest.raises(UsageError, match="are also training problems"):
        held_out_problems(tiny.config(*SYNTHETIC[:2], "evaluation.split=rl"))


@pytest.mark.usefixtures("sizes_unknown")
def test_small_sizes_train_and_full_sizes_never_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(write_checkout(tmp_path / "checkout")))
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    small = ("env.suite=KernelBench", "env.sizes=small", "env.ruleset=kernelbench")
    small += ("judge.memory_bytes=100000000000",)  # full sizes fit as well
    only = training_problems(tiny.config(*small, "env.levels=[1]"))
    assert [each.id for each in only] == ["KernelBench/L1/21@small"]
    elsewhere = ("evaluation.suite=Synthetic", "evaluation.levels=[1]")
    assert held_out_problems(tiny.config(*small, *elsewhere))[0].suite == "Synthetic"
    for sizes in ("", "small", "full"):
        with pytest.raises(UsageError, match="are also training problems"):
            held_out_problems(tiny.config(*small, f"evaluation.sizes={sizes}"))


def test_sizes_are_counted_without_data() -> None:
    inputs, weights, out = 8 * 64 * 4, 64 * 256 * 4, 8 * 256 * 4
    plain, summed, looks = reference_sizes(
        [
            problem("self.linear(x)"),
            problem("self.linear(x).sum()"),
            problem("x if x.sum() > 0 else x"),
        ]
    )
    assert plain == ReferenceSizes(inputs, out, weights, out)
    assert summed == ReferenceSizes(inputs, 4, weights, out)
    assert looks is None
    assert plain.judging == judging_bytes(inputs, out, weights) < plain.on_gpu


@pytest.mark.slow
def test_a_terabyte_takes_no_memory() -> None:
    source = LARGE.format(result="x + x").replace("rand(8, 64)", "rand(1 << 19, 1 << 19)")
    (found,) = reference_sizes([Problem("T/L1/1", "T", 1, "1", source)])
    assert found is not None and found.inputs == 1 << 40


def test_problems_above_the_budget_are_left_out() -> None:
    everything = training_problems(tiny.config(*SYNTHETIC, "env.levels=[1]"))
    sizes = [needed_bytes(each) or 0 for each in everything]
    middle = sorted(sizes)[len(sizes) // 2]
    some = training_problems(
        tiny.config(*SYNTHETIC, "env.levels=[1]", f"judge.memory_bytes={middle}")
    )
    assert len(some) == len(everything) - sum(size > middle for size in sizes)
    assert 0 < len(some) < len(everything)
    with pytest.raises(UsageError, match="need more than the memory budget"):
        training_problems(tiny.config(*SYNTHETIC, "judge.memory_bytes=1"))


@pytest.mark.slow
def test_a_folders_problems_are_measured_first(tmp_path: Path) -> None:
    small = LARGE.format(result="x + x")
    (tmp_path / "1_small.py").write_text(small)
    (tmp_path / "2_large.py").write_text(small.replace("rand(8, 64)", "rand(1 << 14, 1 << 14)"))
    # A reference that looks at its values has no sizes, and stays.
    (tmp_path / "3_looks.py").write_text(LARGE.format(result="x if x.sum() > 0 else x"))
    folder = f"env.suite={tmp_path}"
    levels = "env.levels=[0]"
    found = training_problems(tiny.config(folder, levels, "judge.memory_bytes=2e9"))
    assert [each.name for each in found] == ["1_small", "3_looks"]
    (tmp_path / "3_looks.py").unlink()
    with pytest.raises(UsageError, match=r"all 2 problems .* takes at least 1\.1 GB"):
        training_problems(tiny.config(folder, levels, "judge.memory_bytes=1e9"))


def test_a_runs_budget_is_fixed_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_memory, "device_bytes", lambda device: 10_000_000_000)
    assert with_memory_budget(tiny.config()).judge.memory_bytes == 5_000_000_000
    given = tiny.config("judge.memory_bytes=7e9")
    assert with_memory_budget(given, 1e9).judge.memory_bytes == 7_000_000_000
    fixed = with_memory_budget(tiny.config(), 6e9)
    monkeypatch.setattr(judging_memory, "device_bytes", lambda device: 1)
    again = with_memory_budget(read_settings(Config, fixed.model_dump(), []))
    assert again.judge.memory_bytes == 3_000_000_000, "a run that is resumed keeps its own"
    judge = run_evaluator(fixed)
    assert judge.capabilities.memory_bytes == 3_000_000_000
    judge.close()


def test_the_judge_is_cached_or_not() -> None:
    cached = run_evaluator(tiny.config("judge.cache=true"))
    assert isinstance(cached, CachedEvaluator)
    anew = run_evaluator(tiny.config("judge.cache=true"), cache=False)
    assert isinstance(anew, LocalEvaluator), "a second measurement is one"
    anew.close()
    plain = run_evaluator(tiny.config("judge.workers=3"), timing=True)
    assert isinstance(plain, LocalEvaluator)
    can = plain.capabilities
    assert (can.workers, can.timed, can.ruleset.name) == (3, True, "kernelbench")
    assert plain.standby == 1
    prepared = run_evaluator(tiny.config("judge.standby=3"))
    modest = run_evaluator(tiny.config("judge.standby=3"), standby=1)
    assert isinstance(prepared, LocalEvaluator) and isinstance(modest, LocalEvaluator)
    assert (prepared.standby, modest.standby) == (3, 1)
    prepared.close()
    modest.close()
    cached.close()
    plain.close()


def test_observer_and_rules_are_as_configured() -> None:
    words = tiny.tokenizer()
    given = ("env.context=best", "env.context_tokens=77", "env.feedback=minimal")
    config = tiny.config(*given, "sampling.max_prompt_tokens=500", "env.stop=never")
    observer = training_observer(config, "cpu", TokenCounter(words), max_turns=5)
    assert (observer.context, observer.context_tokens, observer.max_turns) == ("best", 77, 5)
    assert observer.count("a b c") == 3
    rules = episode_rules(config)
    assert (rules.stop_when, rules.feedback_level, rules.prompt_tokens) == ("never", "minimal", 500)


def test_a_text_is_tokenised_once_however_often_it_is_counted() -> None:
    asked: list[str] = []

    def words(text: str, **_: Any) -> dict[str, list[str]]:
        asked.append(text)
        return {"input_ids": text.split()}

    count = TokenCounter(words)
    assert [count(text) for text in ("a b", "c", "a b", "a b c")] == [2, 1, 2, 3]
    assert asked == ["a b", "c", "a b c"]


def test_memory_is_estimated_part_by_part(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("model")
    model = tiny.model(18)
    model.save_pretrained(folder)
    size = sum(weight.numel() for weight in model.parameters())

    def estimate(*overrides: str):  # type: ignore[no-untyped-def]
        return estimate_memory(tiny.config(f"model.id={folder}", *overrides))

    full, adapter = estimate(), estimate("model.lora_rank=4")
    assert full.weights == adapter.weights == 2.0 * size
    assert full.trained == 6.0 * size
    reads = (32 + 32) + (32 + 16) * 2 + (32 + 32) + (32 + 48) * 2 + (48 + 32)
    assert adapter.trained == 16.0 * 4 * 2 * reads
    assert estimate("sampling.batch_size=8").generation < full.generation
    less = estimate("model.gradient_checkpointing=true")
    assert less.learning < full.learning and less.peak <= full.peak
    assert estimate("model.lora_rank=4", "model.quantisation=4bit").weights < size
    for workers, ready in ((1, 3), (4, 2)):
        shared = tiny.config(f"model.id={folder}", f"judge.workers={workers}")
        more = tiny.config(
            f"model.id={folder}", f"judge.workers={workers}", f"judge.standby={ready}"
        )
        before, after = (estimate_memory(each, judged_bytes=1 << 30) for each in (shared, more))
        assert after.judge - before.judge == workers * (ready - 1) * CONTEXT_BYTES
    with pytest.raises(UsageError, match="nowhere"):
        estimate_memory(tiny.config("model.id=/nowhere"))
