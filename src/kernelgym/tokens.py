"""Counts the tokens of texts and cuts texts to a budget.

Contract: budgets are in tokens, counted by a function of the user's (``lambda text:
len(tokenizer.encode(text))``) or, without one, estimated at four characters a token. What is cut
is cut in the middle: compilers, tracebacks and kernels say most at their two ends. The same text,
budget and counter give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kernelgym.errors import UsageError

TokenCounter: TypeAlias = Callable[[str], int]
"""Function that returns the number of tokens of a text."""

_CHARS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for every four characters, rounded up."""
    return -(-len(text) // _CHARS_PER_TOKEN)


def check_counter(count: object) -> TokenCounter:
    """Return a user's token counter, after trying it on a word.

    Raises:
        UsageError: If it does not give a number of tokens.
    """
    if callable(count) and type(found := count("kernel")) is int and found > 0:
        return count
    raise UsageError(
        f"a token counter takes a text and returns how many tokens it has, got {count!r}; such as "
        "lambda text: len(tokenizer.encode(text))"
    )


def cut_middle(text: str, room: int) -> str:
    """Return `text` with its middle left out, so that it has at most `room` characters."""
    if len(text) <= room:
        return text
    mark = f"\n[... {len(text)} characters, middle left out ...]\n"
    keep = room - len(mark)
    if keep < 2:
        return text[: max(0, room)]
    tail = keep // 2
    return text[: keep - tail] + mark + text[len(text) - tail :]


def fit(text: str, budget: int, count: TokenCounter = estimate_tokens) -> str:
    """Return `text`, its middle cut if need be, so that it has at most `budget` tokens."""
    if budget <= 0:
        return ""
    room = len(text)
    cut = text
    while (size := count(cut)) > budget:
        # Tokens are not spread evenly: go down in proportion, by a character at the least.
        room = min(room - 1, room * budget // size)
        cut = cut_middle(text, room)
    return cut
