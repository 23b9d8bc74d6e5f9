"""Prices of a hosted model's tokens, in US dollars.

Contract: pure arithmetic. Tokens are apart by what is charged for them, so that a sum of bills is
the bill of the sum. No model's price is known here: `kernelgym_train.backends.tinker.prices` has a
table, and `kernelgym eval` is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelgym.errors import UsageError


@dataclass(frozen=True, slots=True)
class Tokens:
    """Numbers of tokens of a hosted model, by the price that each kind has."""

    prefill: int = 0
    """Number of prompt tokens that are read for sampling, without those in the service's cache."""
    sample: int = 0
    """Number of tokens that are sampled, thinking included."""
    train: int = 0
    """Number of tokens of prompts and answers that are trained on."""
    cached: int = 0
    """Number of prompt tokens that the service found in its cache."""

    @property
    def total(self) -> int:
        """Number of tokens of all kinds."""
        return self.prefill + self.sample + self.train + self.cached

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prefill + other.prefill,
            self.sample + other.sample,
            self.train + other.train,
            self.cached + other.cached,
        )

    def times(self, count: int) -> Tokens:
        """Return the numbers of tokens multiplied by a factor."""
        return Tokens(
            self.prefill * count, self.sample * count, self.train * count, self.cached * count
        )


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of one model, in USD per million tokens.

    Raises:
        UsageError: If one is negative or not finite.
    """

    prefill: float
    sample: float
    train: float = 0.0
    cached: float | None = None
    """Price of prompt tokens found in the service's cache; None if they cost as much as others."""

    def __post_init__(self) -> None:
        for amount in (self.prefill, self.sample, self.train, self.cached or 0.0):
            if not 0.0 <= amount < math.inf:
                raise UsageError(
                    f"a price is in USD per million tokens, finite and at least 0; got {amount}"
                )

    def usd(self, tokens: Tokens) -> float:
        """Return the price of numbers of tokens, in US dollars."""
        cached = self.prefill if self.cached is None else self.cached
        read = tokens.prefill * self.prefill + tokens.cached * cached
        return (read + tokens.sample * self.sample + tokens.train * self.train) / 1e6
