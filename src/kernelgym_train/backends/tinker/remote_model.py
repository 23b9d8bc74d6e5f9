"""A model on a Tinker service, with its tokenizer, context and spending."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelgym_train.backends.tinker.policy import OpenedLater, TinkerPolicy
from kernelgym_train.backends.tinker.service import Sampler, Service
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.rollout.huggingface_policy import ChatText, SamplingRule


@dataclass(frozen=True, slots=True)
class Remote:
    """Model on a Tinker service, with what its requests need."""

    service: Service
    server: str
    """Address of the service."""
    base_model: str
    """Name of the base model on the service."""
    text: ChatText
    stop: tuple[int, ...]
    """Ids that end an answer."""
    context: int | None
    """Length of the model's context, in tokens; None if it is unknown."""
    answer_timeout_s: float
    spending: Spending = field(default_factory=lambda: Spending(None))
    """Count of the tokens that are sampled and learned from; without caps by default."""

    def policy(
        self, snapshot: Sampler | OpenedLater, version: int, sampling: SamplingRule
    ) -> TinkerPolicy:
        """Return a policy that samples with a snapshot of the weights."""
        return TinkerPolicy(
            snapshot,
            self.text,
            sampling,
            stop=self.stop,
            context=self.context,
            version=version,
            limit_s=self.answer_timeout_s,
            spending=self.spending,
        )
