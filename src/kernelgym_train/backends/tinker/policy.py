"""Sampling on a Tinker service: one snapshot, a request per answer.

Contract: ids and log-probabilities are kept as the service gave them; the seed of an answer is the
request's. An answer that does not come within its limit, or fails, is asked for twice more with the
same seed; then it is a `PolicyFailure`, which costs that trajectory alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from kernelgym import PolicyFailure, UsageError
from kernelgym_train.backends.tinker.recovery import ATTEMPTS, asked_again
from kernelgym_train.backends.tinker.service import Answered, Sampler
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.rollout.huggingface_policy import ChatText, SamplingRule, refuse_long_prompts
from kernelgym_train.types import Completion, SampleRequest


class OpenedLater:
    """Sampler that is opened on the service when it is first used.

    Args:
        make: Function that opens the sampler; the next answer calls it again if it fails.
    """

    def __init__(self, make: Callable[[], Awaitable[Sampler]]) -> None:
        self._make = make
        self._opening: asyncio.Future[Sampler] | None = None

    async def sample(self, prompt: Sequence[int], **asked: Any) -> Answered:
        """Return one answer; see `Sampler.sample`."""
        snapshot = await self._opened()
        return await snapshot.sample(prompt, **asked)

    async def _opened(self) -> Sampler:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._make())
        opening = self._opening
        try:
            # Shielded: an answer that is given up must not cancel what the others wait for.
            return await asyncio.shield(opening)
        except Exception:
            if self._opening is opening:  # the next attempt asks again
                self._opening = None
            raise


class TinkerPolicy:
    """Samples with one snapshot, as `kernelgym_train.rollout.play.Policy`.

    Args:
        snapshot: Sampler of the weights.
        text: Chat template of the model.
        sampling: Temperature, top-p and length of the answers.
        stop: Token ids that end an answer.
        context: Length of the model's context, in tokens; None if it is unknown.
        version: Number of optimiser updates that made the weights.
        limit_s: Seconds that an answer may take.
        spending: Counter of the tokens of the answers; None to count nothing.

    Raises:
        UsageError: If top_k is set, which the service does not apply to log-probabilities.
    """

    def __init__(
        self,
        snapshot: Sampler | OpenedLater,
        text: ChatText,
        sampling: SamplingRule,
        *,
        stop: Sequence[int],
        context: int | None,
        version: int,
        limit_s: float,
        spending: Spending | None = None,
    ) -> None:
        if sampling.top_k:
            raise UsageError(
                f"top_k={sampling.top_k} cannot be used with a Tinker service, "
                "which samples without it; leave it 0"
            )
        self._snapshot, self._text, self._sampling = snapshot, text, sampling
        self._stop, self._context = tuple(stop), context
        self._limit_s, self.version = limit_s, version
        self._spending = spending

    async def sample(
        self, requests: Sequence[SampleRequest]
    ) -> AsyncIterator[tuple[int, Completion]]:
        """Yield (index of the request, its completion) as answers come from the service.

        Raises:
            PolicyFailure: If one cannot be had.
            PromptTooLong: If a prompt and its answer do not fit into the model's context.
            UsageError: If the service does not have the weights.
        """
        tasks = {
            asyncio.ensure_future(self._one(request)): index
            for index, request in enumerate(requests)
        }
        try:
            left = set(tasks)
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield tasks[task], task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, request: SampleRequest) -> Completion:
        prompt, opened = self._text.prompt(request.messages)
        refuse_long_prompts([len(prompt)], self._sampling.max_new_tokens, self._context)

        def ask() -> Awaitable[Answered]:
            return self._snapshot.sample(
                prompt,
                max_tokens=self._sampling.max_new_tokens,
                temperature=self._sampling.temperature,
                top_p=self._sampling.top_p,
                stop=self._stop,
                seed=request.seed,
                limit_s=self._limit_s,
            )

        try:
            found = await asked_again(ask)
        except UsageError:
            raise  # such as weights that the service does not have: every answer would fail
        except Exception as failure:
            raise PolicyFailure(
                f"no answer to {tuple(request.key)} in {ATTEMPTS} attempts: "
                f"{type(failure).__name__}: {failure}"
            ) from failure
        if self._spending is not None:
            self._spending.sampled(len(prompt), len(found.ids))
        return Completion(
            text=self._text.answer(found.ids, opened),
            prompt_ids=prompt,
            ids=found.ids,
            logprobs=found.logprobs,
            finish="stop" if found.stopped else "length",
            policy_version=self.version,
        )
