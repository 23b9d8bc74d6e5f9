"""Cost of a run and its cap; the worst case of each request is reserved before it is made.

Contract: the worst case is the price of one token for each UTF-8 byte of the prompt, or of the
tokens that a tokenizer counts, and of as many sampled tokens as the policy allows. Spent and
reserved amounts together never exceed the cap. A request that does not fit waits while others hold
reservations; if none does, it ends the run (`RunStopped`). A request without a reported usage, or
one that failed, costs its whole reservation; a usage above its reservation ends the run.

Not covered: requests that were in flight when a process was killed, and failed tries of a request
that was answered in the end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.policies import EvalPolicy, ProviderFailure, RunStopped
from kernelgym.errors import UsageError
from kernelgym.prices import Price, Tokens
from kernelgym.tokens import TokenCounter


class SpendingCap:
    """Cap on the US dollars that are spent and reserved.

    Args:
        most_usd: The cap in US dollars; None for no cap.
        spent_usd: US dollars that were spent before.

    Raises:
        UsageError: If the cap is not a positive number.
    """

    def __init__(self, most_usd: float | None = None, spent_usd: float = 0.0) -> None:
        if most_usd is not None and not 0.0 < most_usd < math.inf:
            raise UsageError(f"max_usd (--max-usd) takes US dollars above 0, got {most_usd:g}")
        self.most_usd, self.spent_usd = most_usd, spent_usd
        self.reserved_usd = 0.0
        self.stopped = ""
        """Reason why nothing more is reserved; empty if reserving goes on."""
        self._pending = 0
        self._changed = asyncio.Condition()

    async def reserve(self, usd: float) -> None:
        """Reserve an amount in US dollars, once it fits.

        Raises:
            RunStopped: If it cannot fit, or nothing more is reserved.
        """
        async with self._changed:
            while True:
                if self.stopped:
                    raise RunStopped(self.stopped)
                if self.most_usd is None or self._left() >= usd:
                    break
                if not self._pending:
                    self.stopped = (
                        f"{self.spent_usd:.4f} USD are spent, the next request may cost "
                        f"{usd:.4f}, and max_usd (--max-usd) is {self.most_usd:g}; raise it to "
                        "go on"
                    )
                    self._changed.notify_all()
                    raise RunStopped(self.stopped)
                await self._changed.wait()
            self._pending += 1
            self.reserved_usd += usd

    async def settle(self, reserved: float, usd: float) -> None:
        """Replace a reservation by the cost of the request."""
        async with self._changed:
            self._pending -= 1
            self.reserved_usd = self.reserved_usd - reserved if self._pending else 0.0
            self.spent_usd += usd
            if self.most_usd is not None and usd > reserved and not self.stopped:
                self.stopped = (
                    f"a request cost {usd:.6f} USD, above the {reserved:.6f} that were reserved as "
                    "its worst case, so max_usd (--max-usd) cannot be held; check price "
                    "(--price), or give a tokenizer (--tokenizer)"
                )
            self._changed.notify_all()

    def _left(self) -> float:
        assert self.most_usd is not None
        return self.most_usd - self.spent_usd - self.reserved_usd


class PricedPolicy(EvalPolicy):
    """Policy that adds costs and a cap to another policy.

    Args:
        policy: Policy that answers.
        price: Price of its model.
        cap: Cap on which each request is reserved.
        max_tokens: Largest number of tokens of an answer.
        count: Function that returns an upper bound of a text's tokens; its UTF-8 bytes if None.
    """

    def __init__(
        self,
        policy: EvalPolicy,
        price: Price,
        cap: SpendingCap,
        *,
        max_tokens: int,
        count: TokenCounter | None = None,
    ) -> None:
        self.inner, self.price, self.cap = policy, price, cap
        self.missing = policy.missing
        self._max_tokens = max_tokens
        self._count: Callable[[str], int] = byte_count if count is None else count

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the policy: costs do not decide answers."""
        return self.inner.settings

    async def check(self) -> None:
        """Check the policy."""
        await self.inner.check()

    def worst_usd(self, asked: AnswerRequest) -> float:
        """Return the largest possible cost of a request in US dollars."""
        prompt = sum(self._count(message.content) for message in asked.messages)
        # Some price lists charge more for cached tokens than for others.
        dearest = max(self.price.usd(Tokens(prefill=prompt)), self.price.usd(Tokens(cached=prompt)))
        return dearest + self.price.usd(Tokens(sample=self._max_tokens))

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer with its cost.

        Raises:
            ProviderFailure: If it cannot be had; the failure costs its reservation.
            RunStopped: If it does not fit below the cap.
        """
        worst = self.worst_usd(asked)
        await self.cap.reserve(worst)
        usd = worst
        try:
            found = await self.inner.answer(asked)
            if found.usage is not None:
                usd = self.price.usd(found.usage.tokens)
        except ProviderFailure as failure:
            raise ProviderFailure(str(failure), failure.tries, worst) from failure
        finally:
            await self.cap.settle(worst, usd)
        return dataclasses.replace(found, usd=usd)

    async def close(self) -> None:
        """Close the policy."""
        await self.inner.close()


def byte_count(text: str) -> int:
    """Return the number of UTF-8 bytes of a text, an upper bound of its tokens."""
    return len(text.encode("utf-8", "replace"))


def tokenizer_count(name: str) -> TokenCounter:
    """Return a function that counts tokens with a tokenizer of transformers.

    Raises:
        UsageError: If transformers or the tokenizer is not there.
    """
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(name)
    except (ImportError, OSError, ValueError) as error:
        raise UsageError(
            f"tokenizer (--tokenizer) {name} cannot be loaded: "
            f"{' '.join(str(error).split())[:200]}; give the name or folder of a tokenizer, "
            "or leave it out to count bytes"
        ) from None
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def priced(
    policy: EvalPolicy,
    price: str | Price = "",
    max_usd: float | None = None,
    tokenizer: str = "",
) -> EvalPolicy:
    """Return a policy with price and cap; the policy itself without a price.

    Args:
        policy: Policy that answers.
        price: A price, or a text that `read_price` takes.
        max_usd: US dollars that the run must not exceed; None for no cap.
        tokenizer: Name of the tokenizer that counts prompts; each UTF-8 byte counts for one token
            if empty.

    Raises:
        UsageError: If a cap or tokenizer is given without a price, the policy costs nothing by the
            token, or an argument makes no sense.
    """
    if not price:
        for option, given in (("max_usd", max_usd), ("tokenizer", tokenizer)):
            if given:
                flag = "--" + option.replace("_", "-")
                raise UsageError(
                    f"{option} ({flag}) needs a price: what the model costs is not known; give "
                    "price='IN,OUT' (--price IN,OUT) in USD per million tokens"
                )
        return policy
    settings = policy.settings
    if "max_tokens" not in settings:
        raise UsageError(
            f"policy {settings.get('kind', 'given')!r} costs nothing by the token; leave "
            "price (--price) out"
        )
    return PricedPolicy(
        policy,
        price if isinstance(price, Price) else read_price(price, str(settings["model"])),
        SpendingCap(max_usd),
        max_tokens=settings["max_tokens"],
        count=tokenizer_count(tokenizer) if tokenizer else None,
    )


def read_price(given: str, model: str) -> Price:
    """Return a price from numbers, or from a file of prices.

    Args:
        given: ``IN,OUT`` or ``IN,OUT,CACHED`` in USD per million tokens, or the path of a YAML
            file with ``date`` and ``models``: a mapping of names to ``in``, ``out`` and ``cached``.
        model: Model whose price is read from the file.

    Raises:
        UsageError: If it is neither, or the file has no date or no such model.
    """
    numbers = given.split(",")
    try:
        amounts = [float(number) for number in numbers]
    except ValueError:
        return _from_file(given, model)
    if len(amounts) not in (2, 3):
        raise UsageError(
            "price (--price) takes IN,OUT or IN,OUT,CACHED in USD per million tokens, or a YAML "
            f"file; got {given!r}"
        )
    return Price(amounts[0], amounts[1], cached=amounts[2] if len(amounts) == 3 else None)


def _from_file(path: str, model: str) -> Price:
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(
            "price (--price) takes IN,OUT[,CACHED] in USD per million tokens, or a YAML file, and "
            f"{path!r} cannot be read as one: {' '.join(str(error).split())[:200]}"
        ) from None
    models = data.get("models") if isinstance(data, dict) else None
    if not isinstance(models, dict) or not isinstance(data.get("date"), date | str):
        raise UsageError(
            f"{path!r} holds no prices: it needs `date`, the day they were read, and `models`, a "
            "mapping of names to `in` and `out` in USD per million tokens"
        )
    if model not in models:
        raise UsageError(
            f"{path!r} has no price for model {model!r}, only for "
            f"{', '.join(sorted(map(str, models)))}; add it, or give price='IN,OUT' "
            "(--price IN,OUT)"
        )
    try:
        row = models[model]
        cached = row.get("cached")
        return Price(
            float(row["in"]), float(row["out"]), cached=None if cached is None else float(cached)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path!r}: the price of {model!r} makes no sense: {error}") from None
