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
    """Counter of the tokens and the money that a run spends.

    Args:
        price: Price of the model; None if it is not known.
        most_usd: US dollars at which the run ends; None for no cap.
        most_tokens: Number of tokens at which the run ends; None for no cap.
    """

    def __init__(
        self, price: Price | None, *, most_usd: float | None = None, most_tokens: int | None = None
    ) -> None:
        self._price, self._most_usd, self._most_tokens = price, most_usd, most_tokens
        self.spent = Tokens()
        """Tokens that were counted so far, by kind."""

    def sampled(self, prompt: int, answer: int) -> None:
        """Count the tokens of a prompt and of its answer."""
        self.spent += Tokens(prefill=prompt, sample=answer)

    def trained(self, tokens: int) -> None:
        """Count the tokens of an optimiser update."""
        self.spent += Tokens(train=tokens)

    @property
    def usd(self) -> float | None:
        """Cost of the counted tokens in US dollars; None if the price is not known."""
        return None if self._price is None else self._price.usd(self.spent)

    @property
    def over(self) -> str:
        """Message that names the cap that was reached; empty if none was reached."""
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
        """Return the counted tokens as JSON data, for a checkpoint."""
        return asdict(self.spent)

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from the counted tokens of a checkpoint; an empty mapping starts from zero."""
        self.spent = Tokens(**state)
