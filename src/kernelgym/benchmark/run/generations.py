"""Requests of an eval run to a policy, and the answers.

Contract: frozen records. `Generation.to_dict` is a line of ``generations.jsonl`` without its key,
and `Generation.from_dict` reads it back; unknown fields are ignored. `Generation.answer` is the
text that the episode reads: thinking that the provider returned separately is put in front of the
answer, inside the tags that `kernelgym.answers.parsing` reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from kernelgym.errors import UsageError
from kernelgym.prices import Tokens
from kernelgym.types import Answer, Message, Problem, Verdict

_TAG = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)


class AnswerKey(NamedTuple):
    """Key of one answer of a run: problem, sample and turn."""

    problem: str
    """Id of the problem."""
    sample: int
    """Number of the problem's episode, from 0."""
    turn: int
    """Number of the episode's turn, from 0."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields with which a line of a run's files begins."""
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
            raise TypeError(
                f"an answer's key is a text and two whole numbers, got {problem!r}, "
                f"{sample!r} and {turn!r}"
            )
        return cls(problem, sample, turn)


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Request for one answer of a policy."""

    problem: Problem
    sample: int
    turn: int
    messages: tuple[Message, ...]
    """Conversation that the model reads."""
    seed: int
    """Seed of this answer's sampling, 63 bits, for policies that can be seeded."""

    @property
    def key(self) -> AnswerKey:
        """Key of the answer."""
        return AnswerKey(self.problem.id, self.sample, self.turn)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Numbers of tokens of one request, as the provider counts them."""

    prompt: int
    """Number of tokens of the prompt, cached ones included."""
    cached: int = 0
    """Number of the prompt's tokens that were in the provider's cache."""
    completion: int = 0
    """Number of sampled tokens, thinking included."""
    reasoning: int = 0
    """Number of the sampled tokens that are thinking."""

    @property
    def tokens(self) -> Tokens:
        """Numbers of tokens by kind, as prices distinguish them."""
        cached = min(self.cached, self.prompt)
        return Tokens(prefill=self.prompt - cached, sample=self.completion, cached=cached)


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer of a model, with its tokens, time and cost.

    Halves of characters (lone surrogates) in its texts are replaced, since no file and no request
    can hold them.
    """

    text: str
    reasoning: str = ""
    """Thinking that the provider returned separately from the text."""
    finish_reason: str = "stop"
    """Reason for the end of the answer: ``stop``; ``length`` at a limit of tokens;
    ``content_filter`` if the provider withheld it; or the provider's own word."""
    usage: TokenUsage | None = None
    """Numbers of tokens; None if the provider did not report them."""
    latency_s: float = 0.0
    """Seconds from the first request to the answer, pauses between retries included."""
    tries: int = 1
    """Number of requests that were made for the answer."""
    request_id: str = ""
    """Id of the request at the provider."""
    model: str = ""
    """Name of the model that answered, as the provider reports it."""
    usd: float | None = None
    """Cost in US dollars; None if no price is known."""
    prompt: str = ""
    """Text that the model read, where it cannot be made again from the plan (imports)."""

    def __post_init__(self) -> None:
        for name in ("text", "reasoning", "finish_reason", "request_id", "model", "prompt"):
            if isinstance(given := getattr(self, name), str):  # a line's may be of another type
                object.__setattr__(self, name, given.encode("utf-8", "replace").decode())

    @property
    def answer(self) -> Answer:
        """Text that the episode reads, with the thinking in front."""
        text = self.text
        if thought := _TAG.sub("", self.reasoning).strip():
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        return Answer(text, cut_off=self.finish_reason == "length")

    @property
    def is_empty(self) -> bool:
        """True if the answer has no text beside its thinking."""
        return not self.text.strip()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Return the answer of a line.

        Raises:
            KeyError: If the line has no text.
            TypeError: If a field is of another type.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        known = {name: value for name, value in row.items() if name in names}
        if not isinstance(row["text"], str) or not isinstance(row.get("reasoning", ""), str):
            raise TypeError("text and reasoning of an answer must be texts")
        if (usage := known.get("usage")) is not None:
            counted = {field.name for field in dataclasses.fields(TokenUsage)}
            known["usage"] = TokenUsage(**{n: v for n, v in usage.items() if n in counted})
        return cls(**known)


def request_seed(seed: int | str, key: Iterable[object]) -> int:
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
