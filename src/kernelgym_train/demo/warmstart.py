"""Supervised fitting of a model on `Example`s, for the warm start and for baselines.

Contract: the loss is taken over the tokens of answers, their end included; prompts are rendered as
in episodes. A batch holds examples of similar length, up to a number of tokens with the padding;
each epoch has a new order. Without a time limit, model, examples, rule and seed decide every weight
on one machine; with a limit, the machine's speed does, too.

The model is changed in place, on its device. Nothing is judged.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym.errors import UsageError
from kernelgym_train.demo.corpus import Example
from kernelgym_train.rollout.huggingface_policy import ChatText

_WARMUP = 0.05
_LEAST_RATE = 0.05
_BETAS = (0.9, 0.98)
_MUON = 4.0  # its rate, in AdamW's


@dataclass(frozen=True, slots=True)
class FitRule:
    """Rule of a supervised fitting: epochs, time limit, learning rate and batch size.

    Raises:
        UsageError: If a number is out of range.
    """

    epochs: int = 8
    """Largest number of epochs."""
    seconds: float = math.inf
    """Wall time after which no further batch is begun."""
    learning_rate: float = 3e-3
    """Peak of the learning rate, which rises from 0 and falls to a twentieth along a cosine.
    Embedding, output layer and norms are fitted by AdamW, and the matrices between them by Muon at
    four times the rate (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
    networks")."""
    batch_tokens: int = 3072
    """Largest number of tokens in a batch, padding included."""
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    """Norm to which longer gradients are clipped."""
    half: bool = False
    """Computation in bfloat16, on a GPU, where that is safe; the weights stay in fp32."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_tokens < 1:
            raise UsageError("epochs and batch_tokens must be at least 1")
        if not (self.seconds > 0 and self.learning_rate > 0 and self.max_grad_norm > 0):
            raise UsageError("seconds, learning_rate and max_grad_norm must be above 0")


@dataclass(frozen=True, slots=True)
class FitProgress:
    """Progress of a supervised fitting."""

    batches: int
    """Number of finished batches."""
    of: int
    """Number of batches in all epochs."""
    loss: float
    """Loss of the last batch, in nats per token."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of a supervised fitting."""

    epochs: float
    """Number of finished epochs, with a fraction if time ran out."""
    batches: int
    tokens: int
    """Number of answer tokens that the model was fitted on."""
    loss: float
    """Mean loss over the last tenth of the batches, in nats per token."""
    seconds: float


def encode(text: ChatText, example: Example) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return an example's token ids: those of the prompt, and those of the answer with its end."""
    read, _ = text.prompt(example.messages)
    answer = text.tokenizer(example.answer, add_special_tokens=False)["input_ids"]
    return read, (*answer, text.tokenizer.eos_token_id)


def batches_of(
    lengths: Sequence[int], batch_tokens: int, rng: random.Random
) -> Iterator[list[int]]:
    """Yield the example indices of every batch of one epoch of the warm start.

    Lengths are jittered before they are sorted, so that the same examples do not always meet.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + rng.uniform(0, 8))
    batches: list[list[int]] = []
    widest = 0
    for index in order:
        widest = max(widest, lengths[index])
        if not batches or widest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            widest = lengths[index]
        batches[-1].append(index)
    rng.shuffle(batches)
    yield from batches


def fit(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    rule: FitRule | None = None,
    *,
    seed: int = 0,
    progress: Callable[[FitProgress], None] | None = None,
) -> Fit:
    """Fit a model on answers.

    Args:
        model: Causal language model of transformers, without an adapter; it is changed in place.
        tokenizer: Tokenizer of the model.
        examples: Examples to fit; one that occurs twice counts twice.
        rule: Rule of the fitting.
        seed: Seed of the order of the examples.
        progress: Function that is called after every batch.

    Raises:
        UsageError: If `examples` is empty, or one is longer than the model's context.
    """
    text = ChatText(tokenizer)
    rows = [encode(text, example) for example in examples]
    return fit_rows(model, rows, rule, seed=seed, progress=progress)


def fit_rows(
    model: Any,
    rows: Sequence[tuple[Sequence[int], Sequence[int]]],
    rule: FitRule | None = None,
    *,
    seed: int = 0,
    progress: Callable[[FitProgress], None] | None = None,
) -> Fit:
    """Fit a model on answers that are token ids, as `encode` returns them; see `fit`."""
    import torch

    rule = FitRule() if rule is None else rule
    if not rows:
        raise UsageError("fitting a model needs at least one example, got none")
    lengths = [len(read) + len(answer) for read, answer in rows]
    if max(lengths) > model.config.max_position_embeddings:
        raise UsageError(
            f"an example has {max(lengths)} tokens, and the model's context ends at "
            f"{model.config.max_position_embeddings}; take a larger context or shorter examples"
        )
    order = [
        batch
        for epoch in range(rule.epochs)
        for batch in batches_of(lengths, rule.batch_tokens, random.Random(f"fit/{seed}/{epoch}"))
    ]
    optimisers = _optimisers(model, rule)
    was_training = model.training
    model.train()
    started, tokens, losses = time.monotonic(), 0, list[float]()
    for number, batch in enumerate(order):
        share = max(number / len(order), (time.monotonic() - started) / rule.seconds)
        if share >= 1.0:
            break
        for optimiser, factor in zip(optimisers, (1.0, _MUON), strict=True):
            for group in optimiser.param_groups:
                group["lr"] = factor * rule.learning_rate * _schedule(share)
        loss, count = _loss(model, [rows[index] for index in batch], rule.half)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), rule.max_grad_norm)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        tokens += count
        losses.append(loss.item())
        if progress is not None:
            seconds = time.monotonic() - started
            progress(FitProgress(number + 1, len(order), losses[-1], seconds))
    model.train(was_training)
    last = losses[-max(1, len(losses) // 10) :]
    epochs = rule.epochs * len(losses) / len(order)
    return Fit(epochs, len(losses), tokens, sum(last) / len(last), time.monotonic() - started)


def _optimisers(model: Any, rule: FitRule) -> tuple[Any, Any]:
    """Return AdamW for embedding, output layer and norms, and Muon for the matrices between."""
    import torch

    ends = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    inner = [w for w in model.parameters() if w.ndim == 2 and id(w) not in ends]
    within = {id(weight) for weight in inner}
    others = [weight for weight in model.parameters() if id(weight) not in within]
    decay = rule.weight_decay
    return (
        torch.optim.AdamW(others, rule.learning_rate, _BETAS, weight_decay=decay),
        torch.optim.Muon(inner, _MUON * rule.learning_rate, weight_decay=decay),
    )


def _schedule(share: float) -> float:
    """Return the learning rate at a share of the training, as a fraction of its peak."""
    if share < _WARMUP:
        return (share + 0.002) / _WARMUP
    fallen = 0.5 * (1.0 + math.cos(math.pi * (share - _WARMUP) / (1.0 - _WARMUP)))
    return _LEAST_RATE + (1.0 - _LEAST_RATE) * fallen


def _loss(
    model: Any, rows: Sequence[tuple[Sequence[int], Sequence[int]]], half: bool
) -> tuple[Any, int]:
    """Return the mean loss over the tokens of answers, and the number of these tokens."""
    import torch

    width = max(len(read) + len(answer) for read, answer in rows)
    ids = torch.full((len(rows), width), model.config.pad_token_id)
    learned = torch.zeros((len(rows), width), dtype=torch.bool)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for place, (read, answer) in enumerate(rows):
        whole = torch.tensor([*read, *answer])
        ids[place, : len(whole)] = whole
        mask[place, : len(whole)] = 1
        learned[place, len(read) : len(whole)] = True
    device = model.device
    ids, mask, learned = ids.to(device), mask.to(device), learned.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=half and device.type != "cpu"):
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        # Only where the next token is an answer's: the output layer is most of a small model.
        logits = model.lm_head(hidden[:, :-1][learned[:, 1:]])
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][learned[:, 1:]])
    return loss, int(learned.sum())
