"""The demonstration's model: a Qwen3 of a chosen size with random weights.

Contract: sizes and seed decide every weight. The output layer is not tied to the embedding, so that
training can save it beside an adapter; the tokenizer's padding and end are the model's. Nothing is
downloaded. What it learns is `kernelgym_train.demo.warmstart`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelgym.errors import UsageError


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Sizes of the demonstration's model, a Qwen3.

    Raises:
        UsageError: If one is below 1, or heads do not divide.
    """

    hidden: int
    """Width of the hidden states."""
    layers: int
    heads: int
    key_value_heads: int
    feed_forward: int
    context: int
    """Largest number of tokens of a prompt and its answer together."""

    def __post_init__(self) -> None:
        if min(getattr(self, name) for name in self.__slots__) < 1:
            raise UsageError(f"every size of a model must be at least 1, got {self}")
        if self.hidden % (2 * self.heads) or self.heads % self.key_value_heads:
            raise UsageError(
                "hidden must be a multiple of twice the heads, and heads one of key_value_heads; "
                f"got {self.hidden}, {self.heads} and {self.key_value_heads}"
            )


SMALL = ModelSize(hidden=96, layers=3, heads=4, key_value_heads=4, feed_forward=192, context=512)
"""Size of a model that two CPU cores train in minutes."""


def build_model(
    tokenizer: Any, size: ModelSize = SMALL, *, seed: int = 0, device: str = "cpu"
) -> Any:
    """Return a model with random weights, in fp32.

    Args:
        tokenizer: Tokenizer that sets the size of the vocabulary and the special tokens.
        size: Sizes of the model.
        seed: Seed of the weights; torch's global generator is left unchanged.
        device: Device that the finished model is moved to; the weights do not depend on it.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.hidden // size.heads,
        max_position_embeddings=size.context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).to(device)


def parameter_count(model: Any) -> int:
    """Return the number of weights of a model."""
    return sum(weight.numel() for weight in model.parameters())
