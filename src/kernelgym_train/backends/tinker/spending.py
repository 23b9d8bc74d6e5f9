"""The running total of what a run has spent, and its caps.

Contract: every answer and every update that the service has carried out for this run is counted
once, evaluations included. A total is kept in checkpoints, so a run that is resumed goes on from
that of its checkpoint. Tokens of prompts are counted as if none had been in the service's cache,
which makes the amount in US dollars too high.

It does not cover requests that were given up, nor the first playing of steps that were played anew
after a kill: the service may have carried them out, and put them on the bill as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kernelgym.prices import Price, Tokens


class Spending:
    """Counts what is spent.

    Args:
        price: The model's; None if it is not known.
        most_usd: US dollars at which the run ends; None for no cap.
        most_tokens: Tokens at which it does.
    """

    def __init__(
        self, price: Price | None, *, most_usd: float | None = None, most_tokens: int | None = None
    ) -> None:
        self._price, self._most_usd, self._most_tokens = price, most_usd, most_tokens
        self.spent = Tokens()
        """All that was counted."""

    def sampled(self, prompt: int, answer: int) -> None:
        """Count an answer: tokens of its prompt, and its own."""
        self.spent += Tokens(prefill=prompt, sample=answer)

    def trained(self, tokens: int) -> None:
        """Count tokens that an update learned from."""
        self.spent += Tokens(train=tokens)

    @property
    def usd(self) -> float | None:
        """US dollars for what was counted; None if the price is not known."""
        return None if self._price is None else self._price.usd(self.spent)

    @property
    def over(self) -> str:
        """Which cap was reached, as a sentence; empty if none."""
        if self._most_usd is not None and self.usd is not None and self.usd >= self._most_usd:
            return (
                f"{self.usd:.4g} USD were spent, and tinker.most_usd is {self._most_usd:g}; raise "
                "it to go on with --resume"
            )
        if self._most_tokens is not None and self.spent.total >= self._most_tokens:
            return (
                f"{self.spent.total:,} tokens were spent, and tinker.most_tokens is "
                f"{self._most_tokens:,}; raise it to go on with --resume"
            )
        return ""

    def metrics(self) -> dict[str, float]:
        """Return the totals so far, as metrics."""
        found = {"cost/tokens": float(self.spent.total)}
        return found if self.usd is None else {**found, "cost/usd": self.usd}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as JSON data."""
        return asdict(self.spent)

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint kept; an empty one begins anew."""
        self.spent = Tokens(**state)
