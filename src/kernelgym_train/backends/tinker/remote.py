"""A model on a Tinker service, with its tokenizer, context and spending."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelgym_train.backends.tinker.policy import OpenedLater, TinkerPolicy
from kernelgym_train.backends.tinker.service import Sampler, Service
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.rollout.policies import ChatText, SamplingRule

__all__ = ["Remote"]


@dataclass(frozen=True, slots=True)
class Remote:
    """A model on a service, and how it is asked."""

    service: Service
    server: str
    """The service's address."""
    base_model: str
    """The model's name there."""
    text: ChatText
    stop: tuple[int, ...]
    """Ids that end an answer."""
    context: int | None
    """Tokens that the model's context holds; None if that is not known."""
    answer_timeout_s: float
    spending: Spending = field(default_factory=lambda: Spending(None))
    """Counts what is sampled and learned from; without caps if not given."""

    def policy(
        self, snapshot: Sampler | OpenedLater, version: int, sampling: SamplingRule
    ) -> TinkerPolicy:
        """Return what samples with a snapshot of the weights."""
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
