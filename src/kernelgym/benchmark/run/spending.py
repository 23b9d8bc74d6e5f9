"""Cost of a run and its caps; the worst case of each request is reserved before it is made.

Contract: the worst case is the price of one token for each UTF-8 byte of the prompt, or of the
tokens that a tokenizer counts, and of as many sampled tokens as the policy allows. Spent and
reserved amounts together never exceed the cap, in US dollars or in tokens. A request that does not
fit waits while others hold reservations; if none does, it ends the run (`RunStopped`). A request
without a reported usage, or one that failed, costs its whole reservation; a usage above its
reservation ends the run.

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
    """Cap on what is spent and reserved, in US dollars or in tokens.

    Args:
        most: The cap; None for no cap.
        unit: Unit of all amounts, for messages: ``USD`` or ``tokens``.
        option: Name of the option that sets the cap, for messages.

    Raises:
        UsageError: If the cap is not a positive number.
    """

    def __init__(
        self,
        most: float | None = None,
        *,
        unit: str = "USD",
        option: str = "max_usd (--max-usd)",
    ) -> None:
        if most is not None and not 0.0 < most < math.inf:
            noun = "US dollars" if unit == "USD" else unit
            raise UsageError(f"{option} takes {noun} above 0, got {most:g}")
        self.most, self.spent = most, 0.0
        self.reserved = 0.0
        self.stopped = ""
        """Reason why no further request is allowed; empty while requests are allowed."""
        self._unit, self._option = unit, option
        self._pending = 0
        self._changed = asyncio.Condition()

    async def reserve(self, amount: float) -> None:
        """Reserve an amount, once it fits.

        Raises:
            RunStopped: If it cannot fit, or nothing more is reserved.
        """
        async with self._changed:
            while True:
                if self.stopped:
                    raise RunStopped(self.stopped)
                if self.most is None or self._left() >= amount:
                    break
                if not self._pending:
                    self.stopped = (
                        f"{self._told(self.spent)} {self._unit} are spent, the next request may "
                        f"cost {self._told(amount)}, and {self._option} is {self.most:g}; raise "
                        "it to go on"
                    )
                    self._changed.notify_all()
                    raise RunStopped(self.stopped)
                await self._changed.wait()
            self._pending += 1
            self.reserved += amount

    async def settle(self, reserved: float, amount: float) -> None:
        """Replace a reservation by the cost of the request."""
        async with self._changed:
            self._pending -= 1
            self.reserved = self.reserved - reserved if self._pending else 0.0
            self.spent += amount
            if self.most is not None and amount > reserved and not self.stopped:
                usd = self._unit == "USD"
                check = "check price (--price), or give" if usd else "give"
                digits = 6 if usd else 0
                self.stopped = (
                    f"a request cost {amount:.{digits}f} {self._unit}, above the "
                    f"{reserved:.{digits}f} that were reserved as its worst case, so "
                    f"{self._option} cannot be held; {check} a tokenizer (--tokenizer)"
                )
            self._changed.notify_all()

    def _left(self) -> float:
        assert self.most is not None
        return self.most - self.spent - self.reserved

    def _told(self, amount: float) -> str:
        return f"{amount:.4f}" if self._unit == "USD" else f"{amount:.0f}"


class PricedPolicy(EvalPolicy):
    """Policy that adds costs and caps to another policy.

    Args:
        policy: Policy that answers.
        price: Price of its model; None to count no costs.
        cap: Cap in US dollars on which each request is reserved.
        max_tokens: Largest number of tokens of an answer.
        count: Function that returns an upper bound of a text's tokens; its UTF-8 bytes if None.
        token_cap: Cap in tokens, read and sampled, on which each request is reserved.
    """

    def __init__(
        self,
        policy: EvalPolicy,
        price: Price | None,
        cap: SpendingCap,
        *,
        max_tokens: int,
        count: TokenCounter | None = None,
        token_cap: SpendingCap | None = None,
    ) -> None:
        self.inner, self.price, self.cap = policy, price, cap
        self.token_cap = token_cap or SpendingCap(unit="tokens")
        self.missing = policy.missing
        self._max_tokens = max_tokens
        self._count: Callable[[str], int] = byte_count if count is None else count

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the wrapped policy, since costs decide no answers."""
        return self.inner.settings

    async def check(self) -> None:
        """Check the policy."""
        await self.inner.check()

    def worst_tokens(self, asked: AnswerRequest) -> int:
        """Return the largest possible number of tokens of a request and its answer."""
        return self._prompt_tokens(asked) + self._max_tokens

    def worst_usd(self, asked: AnswerRequest) -> float:
        """Return the largest possible cost of a request in US dollars; 0 without a price."""
        if self.price is None:
            return 0.0
        prompt = self._prompt_tokens(asked)
        # Some price lists charge more for cached tokens than for others.
        dearest = max(self.price.usd(Tokens(prefill=prompt)), self.price.usd(Tokens(cached=prompt)))
        return dearest + self.price.usd(Tokens(sample=self._max_tokens))

    def _prompt_tokens(self, asked: AnswerRequest) -> int:
        return sum(self._count(message.content) for message in asked.messages)

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer with its cost.

        Raises:
            ProviderFailure: If it cannot be had; the failure costs its reservation.
            RunStopped: If it does not fit below a cap.
        """
        usd = worst_usd = self.worst_usd(asked)
        tokens = worst_tokens = self.worst_tokens(asked)
        await self.token_cap.reserve(worst_tokens)
        try:
            await self.cap.reserve(worst_usd)
        except BaseException:
            await self.token_cap.settle(worst_tokens, 0.0)
            raise
        try:
            found = await self.inner.answer(asked)
            if found.usage is not None:
                tokens = found.usage.tokens.total
                usd = 0.0 if self.price is None else self.price.usd(found.usage.tokens)
        except ProviderFailure as failure:
            cost = None if self.price is None else worst_usd
            raise ProviderFailure(str(failure), failure.tries, cost) from failure
        finally:
            await self.cap.settle(worst_usd, usd)
            await self.token_cap.settle(worst_tokens, tokens)
        return dataclasses.replace(found, usd=None if self.price is None else usd)

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
    token_cap: SpendingCap | None = None,
) -> EvalPolicy:
    """Return a policy with price and caps; the policy itself without a price and a cap.

    Args:
        policy: Policy that answers.
        price: A price, or a text that `read_price` takes.
        max_usd: US dollars that the run must not exceed; None for no cap.
        tokenizer: Name of the tokenizer that counts prompts; each UTF-8 byte counts for one token
            if empty.
        token_cap: Cap in tokens; None for no cap. It needs no price.

    Raises:
        UsageError: If a cap or tokenizer is given without a price, the policy costs nothing by the
            token, or an argument makes no sense.
    """
    if not price:
        for option, given in (("max_usd", max_usd), ("tokenizer", tokenizer)):
            if given and not (option == "tokenizer" and token_cap is not None):
                flag = "--" + option.replace("_", "-")
                raise UsageError(
                    f"{option} ({flag}) needs a price: what the model costs is not known; give "
                    "price='IN,OUT' (--price IN,OUT) in USD per million tokens"
                )
        if token_cap is None:
            return policy
    settings = policy.settings
    if "max_tokens" not in settings:
        raise UsageError(
            f"policy {settings.get('kind', 'given')!r} costs nothing by the token; leave "
            "price (--price) and caps out"
        )
    if price and not isinstance(price, Price):
        price = read_price(price, str(settings["model"]))
    return PricedPolicy(
        policy,
        price if isinstance(price, Price) else None,
        SpendingCap(max_usd),
        max_tokens=settings["max_tokens"],
        count=tokenizer_count(tokenizer) if tokenizer else None,
        token_cap=token_cap,
    )


def read_price(given: str, model: str) -> Price:
    """Return the price of a model: from numbers, or from a YAML file of prices.

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
