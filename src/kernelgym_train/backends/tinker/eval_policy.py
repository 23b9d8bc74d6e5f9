"""The policy ``tinker`` of ``kernelgym eval``: weights of a Tinker service.

Contract: opens no connection before `check`. Answers are asked for one by one, as in training
(`kernelgym_train.backends.tinker.policy`); one that cannot be had is a `PolicyFailure`. ``--model``
names the base model, whose tokenizer and chat template are used; without a path, it answers itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.benchmark.run.policies import EvalPolicy
from kernelgym.errors import UsageError
from kernelgym_train.backends.tinker.policy import TinkerPolicy
from kernelgym_train.backends.tinker.service import Service
from kernelgym_train.backends.tinker.settings import check_address
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.models import answer_ends, known_context, load_tokenizer
from kernelgym_train.rollout.eval_policy import generation_of, sampling_of
from kernelgym_train.rollout.huggingface_policy import ChatText, SamplingRule
from kernelgym_train.types import Key, SampleRequest

_LIMIT_S = 600.0


class TinkerEvalPolicy(EvalPolicy):
    """Policy of ``kernelgym eval`` that answers with weights of a Tinker service.

    Args:
        path: Address of the weights for sampling, ``tinker://...``; empty for the base model.
        model: Name of the base model on the hub, or a folder with its tokenizer.
        url: Address of the service; if empty, TINKER_BASE_URL or the hosted service.
        sampling: Temperature, top-p and length of the answers.
        limit_s: Seconds that an answer may take.
        connect: Function that connects to a service.
    """

    def __init__(
        self,
        path: str,
        model: str,
        *,
        url: str = "",
        sampling: SamplingRule | None = None,
        limit_s: float = _LIMIT_S,
        connect: Callable[[str, float], Any] = Service,
    ) -> None:
        self._path, self._url, self._limit_s, self._connect = path, url, limit_s, connect
        self._config = ModelConfig(id=model)
        self._sampling = sampling or SamplingRule()
        self._service: Any = None
        self._policy: TinkerPolicy | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers, for the plan of an eval run."""
        drawn = asdict(self._sampling)
        drawn["max_tokens"] = drawn.pop("max_new_tokens")
        where = {"endpoint": self._url, "path": self._path}
        return {"kind": "tinker", "model": self._config.id, **where, **drawn}

    async def check(self) -> None:
        """Connect to the service, and check that it has the weights.

        Raises:
            UsageError: If there is no key, no tokenizer or no such weights.
        """
        tokenizer = load_tokenizer(self._config)
        self._service = self._connect(self._url, self._limit_s)
        snapshot = await self._service.sampler(self._path, base_model=self._config.id)
        self._policy = TinkerPolicy(
            snapshot,
            ChatText(tokenizer),
            self._sampling,
            stop=answer_ends(self._config, tokenizer),
            context=known_context(self._config),
            version=0,
            limit_s=self._limit_s,
        )

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer.

        Raises:
            PolicyFailure: If it cannot be had.
            UsageError: If `check` has not connected.
        """
        if self._policy is None:
            raise UsageError("there is no connection to the service; await check() first")
        started = time.monotonic()
        request = SampleRequest(Key(0, 0, asked.sample, asked.turn), asked.messages, asked.seed)
        async for _, found in self._policy.sample([request]):
            return generation_of(found, self._config.id, time.monotonic() - started)
        raise RuntimeError(f"the service gave no answer to {tuple(asked.key)}")

    async def close(self) -> None:
        """Close the connection."""
        if self._service is not None:
            self._service.close()
            self._service = self._policy = None


def make(target: str, options: PolicyOptions) -> TinkerEvalPolicy:
    """Return the policy for ``--policy tinker:PATH`` or ``--policy tinker``, with ``--model``.

    Raises:
        UsageError: If there is no model, the path is not an address, or an option makes no sense.
    """
    options.refuse_others(
        "tinker", "model", "endpoint", "temperature", "top_p", "max_tokens", "timeout_s"
    )
    if target:
        check_address(f"--policy tinker:{target}", target)
    if not options.model:
        raise UsageError(
            "policy 'tinker' needs --model, the base model of the weights, such as Qwen/Qwen3-8B: "
            "its tokenizer writes the prompts"
        )
    return TinkerEvalPolicy(
        target,
        options.model,
        url=options.endpoint or "",
        sampling=sampling_of(options),
        limit_s=_LIMIT_S if options.timeout_s is None else options.timeout_s,
    )
