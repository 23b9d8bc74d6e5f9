"""What training asks of a model on a service.

`kernelgym_train.backends.tinker.service` has these requests of the SDK. Contract: none of them
returns before it is done, and each fails after a limit in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kernelgym_train.backends.tinker.datums import DatumRow
from kernelgym_train.backends.tinker.pauses import Pauses
from kernelgym_train.backends.tinker.policy import Snapshot, TinkerPolicy
from kernelgym_train.backends.tinker.reference import ReferenceScores
from kernelgym_train.backends.tinker.service import Updated
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.rollout.policies import ChatText, SamplingRule

__all__ = ["Learning", "Opened", "Remote", "Trains"]


class Learning(Protocol):
    """Remote weights that are trained; `kernelgym_train.backends.tinker.service.Learner`."""

    async def snapshot(self) -> Snapshot:
        """Return what samples with the weights as they are now."""

    async def update(
        self,
        rows: Sequence[DatumRow],
        *,
        loss: str,
        loss_config: Mapping[str, float],
        learning_rate: float,
        weight_decay: float,
        max_grad_norm: float,
    ) -> Updated:
        """Take one optimiser step on the rows."""

    async def has_loss(self, loss: str, loss_config: Mapping[str, float]) -> bool:
        """Return whether the service has a loss; nothing is learned."""

    async def save(self, name: str, *, keep_days: int) -> tuple[str, str]:
        """Keep weights and optimiser; returns their path and the sampler's."""

    async def save_sampler(self, name: str, *, keep_days: int) -> str:
        """Keep the weights for sampling alone; returns their path."""


class Opened(Snapshot, ReferenceScores, Protocol):
    """Samples with kept weights, and tells their log-probabilities."""


class Trains(Protocol):
    """A service that trains; `kernelgym_train.backends.tinker.service.Service`."""

    pauses: Pauses

    async def create(self, model: str, rank: int, seed: int) -> Learning:
        """Return a fresh adapter on a base model."""

    async def restore(self, path: str, *, optimiser: bool = True) -> Learning:
        """Return an adapter as a checkpoint has it."""

    async def sampler(self, path: str = "", *, base_model: str = "") -> Opened:
        """Return what samples with kept weights, or with a base model."""

    async def delete(self, path: str) -> None:
        """Delete weights that are kept."""

    def renew(self) -> None:
        """Take a new session."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A model on a service, and how it is asked."""

    service: Trains
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

    def policy(self, snapshot: Snapshot, version: int, sampling: SamplingRule) -> TinkerPolicy:
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
