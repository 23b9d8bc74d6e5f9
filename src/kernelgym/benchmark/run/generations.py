"""What an eval run asks of a policy, and what it gets.

Contract: frozen records. `Generation.to_dict` is a line of ``generations.jsonl`` without its key,
and `Generation.from_dict` reads it back; what the line of a later version has beside is left aside.
`Generation.answer` is the text that the episode reads: thinking that the provider gave apart stands
in front of the answer, inside the tags that `kernelgym.answers.parsing` knows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from kernelgym.errors import UsageError
from kernelgym.prices import Tokens
from kernelgym.types import Answer, Message, Problem, Verdict

__all__ = [
    "AnswerKey",
    "AnswerRequest",
    "Generation",
    "TokenUsage",
    "recorded_verdict",
    "request_seed",
]

_TAG = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)


class AnswerKey(NamedTuple):
    """Names one answer of a run."""

    problem: str
    """The problem's id."""
    sample: int
    """Which episode of the problem, from 0."""
    turn: int
    """Which turn of the episode, from 0."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that lines of a run's files begin with."""
        return self._asdict()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the key of a line.

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field is of another type.
        """
        problem, sample, turn = row["problem"], row["sample"], row["turn"]
        if not (isinstance(problem, str) and type(sample) is int and type(turn) is int):
            raise TypeError(f"problem, sample and turn are {problem!r}, {sample!r} and {turn!r}")
        return cls(problem, sample, turn)


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """One answer that is asked of a policy."""

    problem: Problem
    sample: int
    turn: int
    messages: tuple[Message, ...]
    """What the model reads."""
    seed: int
    """Seed of this answer's sampling, 63 bits, for policies that can be seeded."""

    @property
    def key(self) -> AnswerKey:
        """The answer's name in the run."""
        return AnswerKey(self.problem.id, self.sample, self.turn)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request, as the provider counts them."""

    prompt: int
    """Of what the model read, those from a cache included."""
    cached: int = 0
    """Of these, found in the provider's cache."""
    completion: int = 0
    """Sampled, thinking included."""
    reasoning: int = 0
    """Of these, thinking."""

    @property
    def tokens(self) -> Tokens:
        """The same, apart by what is charged for them."""
        cached = min(self.cached, self.prompt)
        return Tokens(prefill=self.prompt - cached, sample=self.completion, cached=cached)


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer of a model, and what it took."""

    text: str
    reasoning: str = ""
    """Thinking that the provider gave apart from the text."""
    finish_reason: str = "stop"
    """``stop``; ``length`` if a limit of tokens cut it off; ``content_filter`` if the provider
    withheld it; or the provider's own word."""
    usage: TokenUsage | None = None
    """None if the provider did not tell."""
    latency_s: float = 0.0
    """Seconds from the first request for it to its arrival, pauses between tries included."""
    tries: int = 1
    """Requests that were made for it."""
    request_id: str = ""
    """The provider's name for the request."""
    model: str = ""
    """The model that answered, by the provider's own name."""
    usd: float | None = None
    """Cost in US dollars; None if no price is known."""
    prompt: str = ""
    """Text that the model read, where it cannot be made again from the plan (imports)."""

    @property
    def answer(self) -> Answer:
        """The text that the episode reads, thinking in front."""
        text = self.text
        if thought := _TAG.sub("", self.reasoning).strip():
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        return Answer(text, cut_off=self.finish_reason == "length")

    @property
    def is_empty(self) -> bool:
        """True if the model gave no text beside its thinking."""
        return not self.text.strip()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Rebuild it from a line.

        Raises:
            KeyError: If there is no text.
            TypeError: If a field is of another type.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        known = {name: value for name, value in row.items() if name in names}
        if not isinstance(row["text"], str) or not isinstance(row.get("reasoning", ""), str):
            raise TypeError("text and reasoning must be texts")
        if (usage := known.get("usage")) is not None:
            counted = {field.name for field in dataclasses.fields(TokenUsage)}
            known["usage"] = TokenUsage(**{n: v for n, v in usage.items() if n in counted})
        return cls(**known)


def request_seed(seed: int, key: AnswerKey) -> int:
    """Return the 63-bit seed of one answer's sampling."""
    text = ":".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def recorded_verdict(row: Mapping[str, Any], where: str) -> tuple[str, Verdict]:
    """Return the kernel's digest and the verdict of a line of ``verdicts.jsonl``.

    Args:
        row: The line's data.
        where: File and line, for messages.

    Raises:
        UsageError: If the line holds no verdict.
    """
    try:
        return str(row["kernel_digest"]), Verdict.from_dict(row["verdict"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: not a verdict ({error})") from None
