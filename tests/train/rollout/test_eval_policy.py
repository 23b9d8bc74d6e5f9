"""The hf policy of kernelgym eval: batches, the device lock, long prompts, adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Message, UsageError
from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.benchmark.run.plan import read_plan
from kernelgym.benchmark.run.plan_from_options import problems_of
from kernelgym.cli import judging, main
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.models import load_tokenizer
from kernelgym_train.rollout.device_share import DeviceHold, SharingPolicy
from kernelgym_train.rollout.eval_policy import BatchedAnswers, HFEvalPolicy, make
from kernelgym_train.rollout.huggingface_policy import ChatText
from kernelgym_train.types import Completion, Key, PromptTooLong, SampleRequest
from support import tiny
from support.evals import lines_of


class Batches:
    """A batch policy that remembers its batches; prompts that say so are too long."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        self.batches.append(len(requests))
        long = [n for n, request in enumerate(requests) if "long" in request.messages[0].content]
        if long:
            raise PromptTooLong("too long", tuple(long))
        if any("broken" in request.messages[0].content for request in requests):
            raise RuntimeError("out of memory")
        return [Completion(str(r.key.turn), (1,), (1,), None, "stop", 0) for r in requests]


def ask(policy: Any, texts: Sequence[str], batch: int = 4) -> list[Any]:
    async def all_of_them() -> list[Any]:
        with ThreadPoolExecutor(1) as threads:
            answers = BatchedAnswers(policy, threads, batch)
            asked = (
                answers.sample(SampleRequest(Key(0, 0, 0, n), (Message("user", text),), n))
                for n, text in enumerate(texts)
            )
            return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_answers_awaited_together_are_one_batch() -> None:
    policy = Batches()
    found = ask(policy, ["x"] * 10)
    assert [each.text for each in found] == [str(n) for n in range(10)]
    assert policy.batches == [4, 4, 2]


def test_long_prompt_costs_its_answer_alone() -> None:
    found = ask(Batches(), ["x", "long", "x"])
    assert isinstance(found[1], PromptTooLong)
    assert [found[0].text, found[2].text] == ["0", "2"]


def test_failure_of_the_model_reaches_its_callers() -> None:
    found = ask(Batches(), ["x", "broken", "x", "x", "x"])
    assert [type(each) for each in found] == [RuntimeError] * 4 + [Completion]


def test_generation_holds_the_judges_device_lock() -> None:
    held: list[str] = []

    class Lock:
        def __init__(self, device: str) -> None:
            self._device = device

        def __enter__(self) -> None:
            held.append(self._device)

        def __exit__(self, *_: object) -> None:
            held.append("free")

    share = DeviceHold("cuda:0", "cuda:0", lock=Lock, settle=lambda device: held.append("settled"))
    ask(SharingPolicy(Batches(), share), ["x"] * 5)
    assert held == ["cuda:0", "settled", "free"] * 2


@pytest.fixture
def saved(words: Any, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "model"
    tiny.model(len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    yield folder


@pytest.mark.usefixtures("one_thread")
def test_model_of_a_folder_plays_a_run(saved: Path, tmp_path: Path) -> None:
    options = PolicyOptions(policy_device="cpu", max_tokens=8, temperature=0.7)
    done = evaluate(
        make(str(saved), options),
        **{"suite": "Synthetic", "level": 1, "limit": 2, "samples": 2, "examples": 0},
        **{"out": tmp_path / "run", "evaluator": ScriptedEvaluator()},
    )
    assert done.ended == 4
    rows = lines_of(tmp_path / "run", "generations")
    assert all(0 < row["usage"]["completion"] <= 8 and row["usage"]["prompt"] for row in rows)
    assert {row["finish_reason"] for row in rows} <= {"stop", "length"}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_command_answers_as_transformers_does(saved: Path, tmp_path: Path, monkeypatch) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(saved)
    with torch.no_grad():  # the last layer has no bias: it says words rather than end at once
        model.lm_head.weight[:4] = 0.0
    model.save_pretrained(saved)
    monkeypatch.setattr(judging, "make_evaluator", lambda *_: ScriptedEvaluator())
    out = tmp_path / "run"
    given = ("eval", "--policy", f"hf:{saved}", "--policy-device", "cpu", "--temperature", "0")
    chosen = ("--suite", "Synthetic", "--level", "1", "--limit", "2", "--batch", "2")
    assert main([*given, *chosen, "--max-tokens", "12", "--out", str(out)]) == 0
    plan = read_plan(out)
    observer, chat = plan.observer(), ChatText(load_tokenizer(ModelConfig(id=str(saved))))
    rows = {row["problem"]: row for row in lines_of(out, "generations")}
    assert len(rows) == 2
    for problem in problems_of(plan):
        ids, _ = chat.prompt(observer.observe(problem))
        told = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12)[0]
        row = rows[problem.id]
        assert row["text"] == chat.answer(told[len(ids) :].tolist()).removesuffix("<|im_end|>")
        assert row["usage"]["prompt"] == len(ids)


@pytest.mark.usefixtures("one_thread")
def test_adapter_changes_what_is_answered(saved: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(saved),
        LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False),
    )
    model.save_pretrained(tmp_path / "adapter")

    def answer(target: str) -> str:
        async def ask_once() -> str:
            policy = make(target, PolicyOptions(policy_device="cpu", max_tokens=12, temperature=0))
            try:
                await policy.check()
                assert policy._answers is not None
                request = SampleRequest(Key(0, 0), (Message("user", tiny.LINES[0]),), 1)
                return (await policy._answers.sample(request)).text
            finally:
                await policy.close()

        return asyncio.run(ask_once())

    assert answer(str(saved)) != answer(f"{saved}+{tmp_path / 'adapter'}")


def test_missing_model_and_bad_options_are_refused(tmp_path: Path) -> None:
    policy = make(str(tmp_path / "none"), PolicyOptions(policy_device="cpu"))
    with pytest.raises(UsageError, match=r"model\.id=.*none' cannot be loaded"):
        asyncio.run(policy.check())
    with pytest.raises(UsageError, match="needs a model, as in hf:"):
        make("", PolicyOptions())
    with pytest.raises(UsageError, match="device 'tpu'"):
        make("m", PolicyOptions(policy_device="tpu"))
    with pytest.raises(UsageError, match="--batch must be at least 1"):
        make("m", PolicyOptions(batch=0))
    with pytest.raises(UsageError, match="has no use with policy 'hf'"):
        make("m", PolicyOptions(rpm=3))
    assert HFEvalPolicy("m", "a").settings["adapter"] == "a"
