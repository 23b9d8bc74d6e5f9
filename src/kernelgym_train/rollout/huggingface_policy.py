"""Policy that samples with a Hugging Face model in this process, and its chat template.

Contract: `ChatText` renders messages by the tokenizer's own chat template, and turns sampled ids
into the text that is parsed: special tokens are left out, but not the tags of thinking and answer;
where the template opens a thinking block, the text begins with its tag. Ids are passed on as they
were sampled, never tokenised again.

`HFPolicy` is a `kernelgym_train.rollout.play.BatchPolicy`: left-padded batches, prompts of similar
length together. The seed of a batch is made of the seeds of its requests, so the same requests give
the same ids on the same machine; torch's own generator is left as it was found.

The caller owns the model: this module does not load, move, train or save it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym import Message, UsageError
from kernelgym_train.models import context_tokens
from kernelgym_train.types import Completion, PromptTooLong, SampleRequest

DrawnAnswer = tuple[tuple[int, ...], tuple[float, ...] | None]
"""Token ids of an answer, and their log-probabilities if the sampler gives them."""
Draw = Callable[[Sequence[Sequence[int]], int], Sequence[DrawnAnswer]]
"""Function that samples one answer to each prompt, given as token ids, by a seed."""

_TAG = re.compile(r"</?(?:think(?:ing)?|KERNEL|SUMMARY)>", re.IGNORECASE)
_OPEN_THINK = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """Limits and distribution by which the tokens of an answer are drawn."""

    max_new_tokens: int = 512
    """Maximum number of tokens of an answer."""
    temperature: float = 1.0
    """Sampling temperature; 0 takes the likeliest token each time."""
    top_p: float = 1.0
    """Probability mass of the likeliest tokens that are kept (nucleus sampling)."""
    top_k: int = 0
    """Number of the likeliest tokens that are kept; 0 for all."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if self.temperature < 0.0 or not 0.0 < self.top_p <= 1.0 or self.top_k < 0:
            raise UsageError(
                "temperature and top_k must not be negative, and top_p lie in (0, 1]; got "
                f"{self.temperature}, {self.top_k} and {self.top_p}"
            )

    def options(self) -> dict[str, Any]:
        """Return the rule as options of transformers' `generate`."""
        if self.temperature == 0.0:
            none = {"temperature": None, "top_p": None, "top_k": None}
            return {"max_new_tokens": self.max_new_tokens, "do_sample": False, **none}
        return {
            "max_new_tokens": self.max_new_tokens,
            "do_sample": True,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
        }


class ChatText:
    """Chat template of a tokenizer: renders messages as ids, and sampled ids as text.

    Args:
        tokenizer: A tokenizer of transformers.
        template: Arguments for its template, such as ``{"enable_thinking": False}``.

    Raises:
        UsageError: If the tokenizer has no chat template, or the template fails for a message of a
            user.
    """

    def __init__(self, tokenizer: Any, template: Mapping[str, Any] | None = None) -> None:
        if not getattr(tokenizer, "chat_template", None):
            name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
            raise UsageError(
                f"the tokenizer of {name!r} has no chat template, which prompts need; use an "
                "instruction-tuned model, or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self._template = dict(template or {})
        special = getattr(tokenizer, "added_tokens_decoder", {})
        kept = {number for number, token in special.items() if _TAG.fullmatch(str(token))}
        self._dropped = frozenset(tokenizer.all_special_ids) - kept
        self._merges_system = False
        self._merges_system = not self._takes_system()

    def prompt(self, messages: Sequence[Message]) -> tuple[tuple[int, ...], str]:
        """Return a prompt's ids, and the thinking tag that the prompt ends in, if it does."""
        text = self._render(messages)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        opened = _OPEN_THINK.search(text)
        return tuple(ids), opened[0] if opened else ""

    def answer(self, ids: Sequence[int], opened: str = "") -> str:
        """Return the text of sampled ids.

        Args:
            ids: Token ids, as they were sampled.
            opened: The thinking tag that the prompt ended in; the text begins with it.
        """
        kept = [number for number in ids if number not in self._dropped]
        text: str = self.tokenizer.decode(
            kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return opened + text

    def _render(self, messages: Sequence[Message]) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        if self._merges_system and turns[0]["role"] == "system" and len(turns) > 1:
            joined = f"{turns[0]['content']}\n\n{turns[1]['content']}"
            turns = [{"role": turns[1]["role"], "content": joined}, *turns[2:]]
        text: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, **self._template
        )
        return text

    def _takes_system(self) -> bool:
        """Return True if a tokenizer's chat template accepts a system message."""
        from jinja2 import TemplateError

        trial = (Message("system", "s"), Message("user", "u"))
        try:
            self._render(trial)
        except TemplateError:
            try:
                self._render(trial[1:])
            except TemplateError as error:
                raise UsageError(f"the tokenizer's chat template fails: {error}") from None
            return False
        return True


class HFPolicy:
    """Samples from a model of transformers.

    Args:
        model: A causal language model, with or without adapters.
        tokenizer: Tokenizer of the model.
        sampling: Rule by which tokens are drawn.
        batch: Maximum number of requests of one `generate`.
        template: Arguments for the chat template.
        version: Number of optimiser steps that the model has taken.
        draw: Draws answers to prompts, given as ids, and a seed; the model's own `generate` if
            None.

    Raises:
        UsageError: If `batch` is below 1, or the tokenizer or model lacks something.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        sampling: SamplingRule | None = None,
        *,
        batch: int = 64,
        template: Mapping[str, Any] | None = None,
        version: int = 0,
        draw: Draw | None = None,
    ) -> None:
        if batch < 1:
            raise UsageError(f"batch must be at least 1, got {batch}")
        self.model = model
        self.sampling = SamplingRule() if sampling is None else sampling
        self.version = version
        """Number of optimiser steps that the model has taken, for the completions."""
        self._text = ChatText(tokenizer, template)
        self._batch, self._draw = batch, self._sample if draw is None else draw
        self._ends = end_ids(model, tokenizer)
        pad = tokenizer.pad_token_id
        self._pad = self._ends[0] if pad is None else pad

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Return one completion per request, in their order.

        Raises:
            PromptTooLong: If a prompt and its answer do not fit into the model's context.
        """
        prompts = [self._text.prompt(request.messages) for request in requests]
        context = context_tokens(self.model.config)
        lengths = [len(ids) for ids, _ in prompts]
        refuse_long_prompts(lengths, self.sampling.max_new_tokens, context)
        found: dict[int, Completion] = {}
        for chunk in by_length([len(ids) for ids, _ in prompts], self._batch):
            seed = batch_seed([requests[index].seed for index in chunk])
            sampled = self._draw([prompts[index][0] for index in chunk], seed)
            for index, (ids, logprobs) in zip(chunk, sampled, strict=True):
                read, opened = prompts[index]
                found[index] = Completion(
                    text=self._text.answer(ids, opened),
                    prompt_ids=read,
                    ids=ids,
                    logprobs=logprobs,
                    finish="stop" if ids and ids[-1] in self._ends else "length",
                    policy_version=self.version,
                )
        return [found[index] for index in range(len(requests))]

    def _sample(self, prompts: Sequence[Sequence[int]], seed: int) -> list[DrawnAnswer]:
        import torch

        width = max(map(len, prompts))
        device = self.model.device
        ids = torch.tensor([[self._pad] * (width - len(row)) + [*row] for row in prompts])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
        was_training = self.model.training
        self.model.eval()
        gpus = [device] if device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices=gpus), torch.no_grad():
                torch.manual_seed(seed)
                out = self.model.generate(
                    input_ids=ids.to(device),
                    attention_mask=mask.to(device),
                    eos_token_id=list(self._ends),
                    pad_token_id=self._pad,
                    use_cache=True,
                    **self.sampling.options(),
                )
        finally:
            self.model.train(was_training)
        return [(self._until_end(row), None) for row in out[:, width:].tolist()]

    def _until_end(self, row: Sequence[int]) -> tuple[int, ...]:
        """Return a sampled row's ids up to the end token, without the padding."""
        for place, number in enumerate(row):
            if number in self._ends:
                return tuple(row[: place + 1])
        return tuple(row)


def refuse_long_prompts(lengths: Sequence[int], max_new_tokens: int, context: int | None) -> None:
    """Refuse prompts that leave no room for an answer in the model's context.

    Args:
        lengths: Tokens of each prompt.
        max_new_tokens: Most tokens of an answer.
        context: Tokens that the model's context holds; None if that is not known.

    Raises:
        PromptTooLong: If there are such prompts; it names their indices.
    """
    if context is None:
        return
    places = tuple(i for i, length in enumerate(lengths) if length + max_new_tokens > context)
    if places:
        raise PromptTooLong(
            f"a prompt of {max(lengths[place] for place in places)} tokens and an answer of "
            f"{max_new_tokens} do not fit into the model's context of {context}; lower "
            "sampling.max_new_tokens, sampling.max_prompt_tokens or env.examples",
            places,
        )


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the token ids that end an answer: the tokenizer's own and those of the model.

    Raises:
        UsageError: If there are none.
    """
    declared = getattr(model.generation_config, "eos_token_id", None)
    many = declared if isinstance(declared, list | tuple) else [declared]
    found = dict.fromkeys(n for n in (tokenizer.eos_token_id, *many) if n is not None)
    if not found:
        raise UsageError("neither tokenizer nor model says which token ends an answer")
    return tuple(found)


def batch_seed(seeds: Sequence[int]) -> int:
    """Return one 63-bit seed for requests that are sampled together."""
    text = ":".join(map(str, seeds))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def by_length(lengths: Sequence[int], batch: int) -> Iterator[list[int]]:
    """Yield indices of prompts in batches, the longest first.

    If the longest prompts do not fit into memory, the first batch fails.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    for start in range(0, len(order), batch):
        yield order[start : start + batch]
