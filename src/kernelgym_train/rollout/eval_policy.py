"""The policy ``hf`` of ``kernelgym eval``: a model of transformers.

Contract: answers that are awaited at the same time are generated together, in a thread of their
own, so the event loop goes on judging. On a device on which kernels are judged, the public device
lock is held around each generation and never while a verdict is awaited. A prompt that does not fit
into the model's context costs that answer alone.

An answer depends on which others it was generated with, so a run does not repeat byte for byte.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from kernelgym.benchmark.run.generations import AnswerRequest, Generation, TokenUsage
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.benchmark.run.policies import EvalPolicy
from kernelgym.devices import check_device
from kernelgym.errors import UsageError
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.models import load_model, load_tokenizer, model_device
from kernelgym_train.rollout.device_share import DeviceHold, SharingPolicy
from kernelgym_train.rollout.huggingface_policy import HFPolicy, SamplingRule
from kernelgym_train.rollout.play import AwaitedAnswer, BatchPolicy, generate_each, settle
from kernelgym_train.types import Completion, Key, SampleRequest

MAX_TOKENS = 4096
"""Largest number of tokens of an answer, unless an option sets another."""
_BATCH = 32


class BatchedAnswers:
    """Generates answers that are awaited at the same time together.

    Args:
        policy: Generates; only ever in one thread.
        threads: Executor with the one thread that generates.
        batch: Most answers of one call.
    """

    def __init__(self, policy: BatchPolicy, threads: ThreadPoolExecutor, batch: int) -> None:
        self._policy, self._threads, self._batch = policy, threads, batch
        self._waiting: list[AwaitedAnswer] = []
        self._working: asyncio.Task[None] | None = None

    async def sample(self, request: SampleRequest) -> Completion:
        """Return one answer.

        Raises:
            PromptTooLong: If the prompt and its answer do not fit into the model's context.
        """
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # tasks that are ready now add theirs
                group = self._waiting[: self._batch]
                del self._waiting[: self._batch]
                live = [each for each in group if not each[1].done()]
                requests = [request for request, _ in live]
                loop = asyncio.get_running_loop()
                work = functools.partial(generate_each, self._policy, requests)
                settle(live, await loop.run_in_executor(self._threads, work))
        finally:
            self._working = None


class HFEvalPolicy(EvalPolicy):
    """Answers with a model of transformers.

    Args:
        model: Name of the model on the hub, or its folder.
        adapter: Folder or name of an adapter of peft; empty for none.
        sampling: Rule by which tokens are drawn.
        device: Device of the model; ``auto`` for a GPU if there is one.
        judge: The device on which kernels are judged.
        batch: Most answers that are generated together.

    Raises:
        UsageError: If an argument makes no sense.
    """

    def __init__(
        self,
        model: str,
        adapter: str = "",
        *,
        sampling: SamplingRule | None = None,
        device: str = "auto",
        judge: str = "cpu",
        batch: int = _BATCH,
    ) -> None:
        if batch < 1:
            raise UsageError(f"--batch must be at least 1, got {batch}")
        self._config = ModelConfig(id=model, device=device)
        self._adapter, self._judge, self._batch = adapter, judge, batch
        self._sampling = sampling or SamplingRule(max_new_tokens=MAX_TOKENS)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kernelgym-hf")
        self._answers: BatchedAnswers | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers: model, adapter and sampling options."""
        drawn = asdict(self._sampling)
        drawn["max_tokens"] = drawn.pop("max_new_tokens")
        return {"kind": "hf", "model": self._config.id, "adapter": self._adapter, **drawn}

    async def check(self) -> None:
        """Load the model.

        Raises:
            UsageError: If it is not there, or does not fit the machine.
        """
        loop = asyncio.get_running_loop()
        policy = await loop.run_in_executor(self._threads, self._load)
        self._answers = BatchedAnswers(policy, self._threads, self._batch)

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer.

        Raises:
            PromptTooLong: If the prompt and its answer do not fit into the model's context.
            UsageError: If `check` has not loaded the model.
        """
        if self._answers is None:
            raise UsageError("the model is not loaded; await check() first")
        started = time.monotonic()
        key = Key(0, 0, asked.sample, asked.turn)
        found = await self._answers.sample(SampleRequest(key, asked.messages, asked.seed))
        return generation_of(found, self._config.id, time.monotonic() - started)

    async def close(self) -> None:
        """Release the model and its memory."""
        self._answers = None
        await asyncio.to_thread(self._threads.shutdown)

    def _load(self) -> BatchPolicy:
        device = model_device(self._config)
        model = load_model(self._config)
        if self._adapter:
            model = _with_adapter(model, self._adapter)
        policy = HFPolicy(model, load_tokenizer(self._config), self._sampling, batch=self._batch)
        return SharingPolicy(policy, DeviceHold(device, self._judge))


def _with_adapter(model: Any, adapter: str) -> Any:
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the adapter {adapter!r} cannot be loaded: {' '.join(str(error).split())[:200]}; give "
            "the folder of an adapter of this model"
        ) from None


def generation_of(found: Completion, model: str, latency_s: float) -> Generation:
    """Return a completion as the answer of an eval run."""
    return Generation(
        found.text,
        finish_reason=found.finish,
        usage=TokenUsage(prompt=len(found.prompt_ids), completion=len(found.ids)),
        latency_s=latency_s,
        model=model,
    )


def sampling_of(options: PolicyOptions) -> SamplingRule:
    """Return the sampling rule that options of `kernelgym eval` describe.

    Raises:
        UsageError: If an option makes no sense.
    """
    given = {
        "max_new_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
    }
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return SamplingRule(**({"max_new_tokens": MAX_TOKENS} | known))


def make(target: str, options: PolicyOptions) -> HFEvalPolicy:
    """Return the policy for ``--policy hf:ID_OR_PATH`` or ``hf:ID_OR_PATH+ADAPTER``.

    Raises:
        UsageError: If there is no target, or an option makes no sense.
    """
    used: Sequence[str] = ("temperature", "top_p", "max_tokens", "policy_device", "batch")
    options.refuse_others("hf", *used)
    model, _, adapter = target.partition("+")
    if not model:
        raise UsageError(
            "policy 'hf' needs a model, as in hf:Qwen/Qwen2.5-Coder-7B-Instruct or "
            "hf:runs/mine/model+runs/mine/adapter"
        )
    device = options.policy_device or "auto"
    if device != "auto":
        device = check_device(device)
    return HFEvalPolicy(
        model,
        adapter,
        sampling=sampling_of(options),
        device=device,
        judge=options.device,
        batch=_BATCH if options.batch is None else options.batch,
    )
