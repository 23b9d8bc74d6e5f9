"""A tiny training with TRL: what a run leaves, and what guards and interrupts do to it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, Problem, UsageError, Verdict, read_records
from kernelgym.testing import verdict
from kernelgym.types import Status
from kernelgym_train.rollout.device_share import DeviceHold
from kernelgym_train.rollout.huggingface_policy import HFPolicy
from kernelgym_train.run import steps
from kernelgym_train.run.runlog import RunLog
from support import tiny

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("finished") / "run"
    outcome, _ = tiny.run(folder, tiny.config("optimiser.steps=3", "model.lora_rank=4"))
    return folder, outcome


def test_what_a_run_leaves(finished: tuple[Path, Any]) -> None:
    folder, outcome = finished
    assert (outcome.steps, outcome.stopped) == (3, "")
    metrics = rows(folder, "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2]
    for name in (
        *("reward/mean", "reward/std", "kernel/format_rate", "kernel/compile_rate"),
        *("kernel/correct_rate", "kernel/cheat_rate", "batch/groups", "batch/trajectories"),
        *("batch/turns", "turn_1/correct_rate", "level_1/reward_mean", "episode/success_rate"),
        *("episode/turns_mean", "advantage/mean", "advantage/std", "reward_part/format"),
        *("infra/fail_rate", "groups/waste", "tokens/answer_mean", "tokens/cut_off_rate"),
        *("time/model_s", "time/judge_s", "time/train_s", "time/total_s", "progress/done_frac"),
        *("train/learning_rate", "train/grad_norm", "train/entropy", "train/loss"),
    ):
        assert all(isinstance(row[name], float | int) for row in metrics), name
    for row in metrics:  # the parts of a step do not overlap
        assert 0 < row["time/train_s"] <= row["time/total_s"] - row["time/play_s"]
    assert not any(name.startswith(("train/reward", "train/compl")) for name in metrics[0])
    records = list(read_records(folder / "trajectories.jsonl"))
    assert len(records) == sum(row["batch/trajectories"] for row in metrics)
    assert len(rows(folder, "tokens.jsonl")) == sum(row["batch/turns"] for row in metrics)
    saved = folder / "checkpoints" / "checkpoint-3"
    assert (saved / "adapter_model.safetensors").is_file()
    assert not (saved / "model.safetensors").exists(), "the base model is not written"


def test_sampled_ids_are_trained_on_as_they_are(finished: tuple[Path, Any]) -> None:
    """What the side file holds decodes to the text that was judged."""
    folder, _ = finished
    words = tiny.tokenizer()
    actions = [
        turn.action
        for record in read_records(folder / "trajectories.jsonl")
        for turn in record.trajectory.turns
    ]
    from kernelgym_train.rollout.huggingface_policy import ChatText

    text = ChatText(words)
    assert [text.answer(row["ids"]) for row in rows(folder, "tokens.jsonl")] == actions


def test_versions_of_the_policy_are_told(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    for row in rows(folder, "tokens.jsonl"):
        assert row["policy_version"] == row["key"][0]


def test_the_digest_is_of_what_is_trained() -> None:
    import torch

    from kernelgym_train.models import weights_digest

    model = tiny.model(18)
    model.lm_head.weight.requires_grad_(False)
    before = weights_digest(model)
    with torch.no_grad():
        model.lm_head.weight += 1.0
    assert weights_digest(model) == before
    with torch.no_grad():
        model.model.norm.weight[0] += 1e-7
    assert weights_digest(model) != before


def test_the_same_requests_are_answered_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever torch's generator is at: sampling follows from seeds of requests alone."""
    generate = HFPolicy.generate
    answered = []

    def twice(self: HFPolicy, requests: Any) -> Any:
        answered.append((generate(self, requests), generate(self, requests)))
        return answered[-1][0]

    monkeypatch.setattr(HFPolicy, "generate", twice)
    tiny.run(tmp_path / "run", tiny.config("optimiser.steps=1"))
    assert answered and all(one == other for one, other in answered)


def test_an_adapter_is_saved_and_merged(finished: tuple[Path, Any], tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from kernelgym_train.models import merge_adapter, save_model

    _, outcome = finished
    words = tiny.tokenizer()
    base = tiny.model(len(words))
    base.save_pretrained(tmp_path / "base")
    outcome.model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    save_model(outcome.model, words, tmp_path / "model")
    merge_adapter(tmp_path / "model", tmp_path / "merged")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    ids = torch.tensor([[2, 4, 5, 6, 7]])
    with torch.no_grad():
        trained, merged = outcome.model.eval()(ids).logits, plain(ids).logits
        assert torch.allclose(trained, merged, atol=1e-5)
        assert not torch.allclose(base(ids).logits, merged, atol=1e-4), "it has learned something"
    with pytest.raises(UsageError, match="no adapter"):
        merge_adapter(tmp_path / "merged", tmp_path / "twice")


@pytest.mark.slow
def test_the_tiny_model_learns(tmp_path: Path) -> None:
    """Not a benchmark: reward goes up where it can."""
    settings = tiny.config(
        *("optimiser.steps=25", "optimiser.learning_rate=0.02", "sampling.group_size=8"),
        *("sampling.problems_per_step=4", "run.save_every=1000", "env.stop=never"),
        *("optimiser.micro_batch=32", "sampling.max_new_tokens=4"),
    )
    tiny.run(tmp_path / "run", settings)
    rewards = [row["reward/mean"] for row in rows(tmp_path / "run", "metrics.jsonl")]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.2


def same(problem: Any, kernel: Any) -> Verdict:
    return verdict("wrong")


def test_steps_with_nothing_to_teach_change_no_weight(tmp_path: Path) -> None:
    """Fillers alone: no gradient, no crash, and a guard that says so."""
    settings = tiny.config(
        *("guards.window=2", "optimiser.steps=2", "run.save_every=1", "curriculum.enabled=false"),
        *("sampling.problems_per_step=1", "sampling.group_size=4", "optimiser.micro_batch=2"),
        *("env.max_turns=1", "reward.preset=sparse"),
    )
    _, log = tiny.run(tmp_path / "run", settings, script=same)
    metrics = rows(log.folder, "metrics.jsonl")
    assert [row["groups/with_signal"] for row in metrics] == [0.0, 0.0]
    assert [row["groups/waste"] for row in metrics] == [1.0, 1.0]
    assert [row["groups/rounds"] for row in metrics] == [2.0, 2.0], "it was tried once more"
    assert [row["train/grad_norm"] for row in metrics] == [0.0, 0.0]
    assert len({row["weights"] for row in rows(log.folder, "checkpoints.jsonl")}) == 1
    alarms = {row["guard"] for row in rows(log.folder, "events.jsonl") if row["event"] == "alarm"}
    assert alarms == {"no_signal", "gap"}


def down(problem: Any, kernel: Any) -> Verdict:
    return Verdict(Status.UNAVAILABLE, message="the judge is down")


def test_a_judge_that_is_down_stops_the_run(tmp_path: Path) -> None:
    outcome, log = tiny.run(tmp_path / "run", tiny.config(), script=down)
    assert outcome.steps == 1 and outcome.stopped.startswith("infrastructure")
    (row,) = rows(log.folder, "metrics.jsonl")
    # Answers without a kernel never reach the judge, and count.
    assert row["infra/fail_rate"] > 0.5 and row["kernel/format_rate"] == 0.0
    alarm = next(each for each in rows(log.folder, "events.jsonl") if each["event"] == "alarm")
    assert alarm["action"] in ("stop", "off")


COLLAPSE = (
    *("guards.collapse=rollback", "guards.least_entropy=2.74", "guards.window=1"),
    *("run.save_every=1", "optimiser.steps=4"),
)


@pytest.mark.slow
def test_a_collapse_rolls_back_and_changes_something(tmp_path: Path) -> None:
    """The entropy of the tiny model falls below the guard's least after a step or two."""
    settings = tiny.config(*COLLAPSE, "optimiser.learning_rate=0.03", "guards.no_signal=off")
    outcome, log = tiny.run(tmp_path / "run", settings)
    events = rows(log.folder, "events.jsonl")
    backs = [event for event in events if event["event"] == "rollback"]
    assert 1 <= len(backs) <= 3
    saved = rows(log.folder, "checkpoints.jsonl")
    assert all(row["good"] for row in saved[:1])
    assert outcome.stopped or outcome.steps == 4
    metrics = rows(log.folder, "metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(len(metrics))), "no step is there twice"
    rates = {row["train/learning_rate"] for row in metrics}
    assert rates <= {0.03 / 2**n for n in range(4)}
    assert len(rates) > 1 or len(metrics) == 1
    # The first step after going back starts from weights that it had before, and samples others.
    plain = tiny.config(*COLLAPSE, "optimiser.learning_rate=0.03", "guards.collapse=off")
    _, other = tiny.run(tmp_path / "plain", plain)
    back = next(n for n, row in enumerate(metrics) if row["train/learning_rate"] < 0.03)

    def sampled(folder: Path) -> list[Any]:
        return [row["ids"] for row in rows(folder, "tokens.jsonl") if row["key"][0] == back]

    assert sampled(log.folder) != sampled(other.folder)
    for step in range(back):
        assert metrics[step]["train/grad_norm"] == pytest.approx(
            rows(other.folder, "metrics.jsonl")[step]["train/grad_norm"]
        )


def test_a_checkpoint_after_an_alarm_is_none_to_go_back_to(tmp_path: Path) -> None:
    settings = tiny.config(
        *("guards.least_entropy=9", "guards.collapse=warn", "optimiser.steps=1"), "run.save_every=1"
    )
    outcome, log = tiny.run(tmp_path / "run", settings)
    assert outcome.stopped == ""
    assert [row["good"] for row in rows(log.folder, "checkpoints.jsonl")] == [False]


def test_without_a_good_checkpoint_it_stops(tmp_path: Path) -> None:
    settings = tiny.config(*COLLAPSE[:2], "guards.least_entropy=9", "guards.window=1")
    outcome, _ = tiny.run(tmp_path / "run", settings)
    assert outcome.steps == 1 and outcome.stopped.startswith("collapse/entropy")


@pytest.mark.slow
def test_an_interrupt_finishes_the_step_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelgym_train.backends.trl.trainer import KernelTrainer

    roll_out = KernelTrainer.roll_out

    def interrupted(self: KernelTrainer, count: int) -> dict[str, Any]:
        if self.state.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return roll_out(self, count)

    folder = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(KernelTrainer, "roll_out", interrupted)
        whole, _ = tiny.run(tmp_path / "whole", tiny.config("optimiser.steps=3"))
    assert whole.steps == 3, "in the last step there is nothing left to interrupt"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(KernelTrainer, "roll_out", interrupted)
        tiny.run(folder, tiny.config("run.save_every=100"))
    assert signal.getsignal(signal.SIGINT) == before
    start = RunLog.follow(folder).start
    assert start is not None and start.step == 3
    outcome, _ = tiny.run(folder, tiny.config("run.save_every=100"), resume=True)
    assert outcome.steps == 5


def test_device_lock_is_held_while_the_model_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelgym_train.backends.trl.trainer import KernelTrainer

    held: list[str] = []
    seen: list[str] = []

    @contextlib.contextmanager
    def lock(device: str) -> Iterator[None]:
        held.append(device)
        yield
        held.remove(device)

    def checked(name: str) -> Any:
        method = getattr(KernelTrainer, name)

        @functools.wraps(method)  # generation's form is read from its signature
        def call(self: KernelTrainer, *args: Any, **options: Any) -> Any:
            assert held == ["cuda:0"], name
            seen.append(name)
            return method(self, *args, **options)

        return call

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        assert not held
        seen.append("judged")
        return tiny.judge(problem, kernel)

    share = DeviceHold("cuda:0", "cuda:0", lock=lock, settle=lambda device: None)
    monkeypatch.setattr(steps, "DeviceHold", lambda: share)
    for name in ("_generate_single_turn", "_compute_loss"):
        monkeypatch.setattr(KernelTrainer, name, checked(name))
    settings = tiny.config("optimiser.steps=2", "optimiser.updates_per_step=2")
    tiny.run(tmp_path / "run", settings, script=judged)
    assert not held and set(seen) == {"judged", "_generate_single_turn", "_compute_loss"}


def test_the_interpreter_of_triton_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match="TRITON_INTERPRET"):
        tiny.run(tmp_path / "run", tiny.config())
