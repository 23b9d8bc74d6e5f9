"""Reading of replies of the chat and responses APIs, from different servers.

Contract: pure. Thinking that a server returns separately (``reasoning_content``, ``reasoning``,
parts of type ``thinking``, summaries of the responses API) becomes `Generation.reasoning`. A finish
reason is ``length`` if a limit of tokens ended the answer, ``content_filter`` if it was withheld,
and the server's own word otherwise. A missing usage is None, never 0, and so is
one whose numbers are negative or absurd.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgym.benchmark.run.generations import Generation, TokenUsage

_MOST_TOKENS = 10**9  # of one request; a larger number is no count
_LENGTH = ("length", "max_tokens", "max_output_tokens", "model_length")


def chat_reply(body: Mapping[str, Any]) -> Generation:
    """Return the answer in a body of the chat API.

    Raises:
        KeyError: If the body holds no answer; or IndexError, TypeError or AttributeError.
    """
    choice = body["choices"][0]
    message = choice["message"]
    text, thought = _parts(message.get("content"))
    for name in ("reasoning_content", "reasoning"):
        if not thought and isinstance(message.get(name), str):
            thought = message[name]
    if not text and isinstance(message.get("refusal"), str):
        text = message["refusal"]
    return Generation(
        text,
        thought,
        finish_reason=_reason(choice.get("finish_reason")),
        usage=_usage(body.get("usage"), "prompt", "completion"),
        request_id=str(body.get("id") or ""),
        model=str(body.get("model") or ""),
    )


def responses_reply(body: Mapping[str, Any]) -> Generation:
    """Return the answer in a body of the responses API.

    Raises:
        KeyError: If the body holds no answer; or TypeError or AttributeError.
    """
    texts: list[str] = []
    thoughts: list[str] = []
    for item in body["output"]:
        if item.get("type") == "message":
            for part in item["content"]:
                texts.append(str(part.get("text") or part.get("refusal") or ""))
        elif item.get("type") == "reasoning":
            shown = [*(item.get("summary") or ()), *(item.get("content") or ())]
            thoughts += [str(part.get("text") or "") for part in shown]
    reason = "stop"
    if body.get("status") == "incomplete":
        reason = (body.get("incomplete_details") or {}).get("reason") or "incomplete"
    return Generation(
        "".join(texts),
        "\n\n".join(filter(None, thoughts)),
        finish_reason=_reason(reason),
        usage=_usage(body.get("usage"), "input", "output"),
        request_id=str(body.get("id") or ""),
        model=str(body.get("model") or ""),
    )


def _parts(content: Any) -> tuple[str, str]:
    """Return (text, thinking) of a message's content: a text, parts, or nothing."""
    if content is None or isinstance(content, str):
        return content or "", ""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content:
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            thoughts.append(inner if isinstance(inner, str) else _parts(inner)[0])
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "".join(texts), "".join(thoughts)


def _reason(given: Any) -> str:
    named = str(given or "stop")
    return "length" if named in _LENGTH else named


def _usage(given: Any, read: str, written: str) -> TokenUsage | None:
    if not isinstance(given, Mapping) or f"{read}_tokens" not in given:
        return None
    before = given.get(f"{read}_tokens_details") or {}
    after = given.get(f"{written}_tokens_details") or {}
    found = TokenUsage(
        prompt=int(given[f"{read}_tokens"] or 0),
        cached=int(before.get("cached_tokens") or 0),
        completion=int(given.get(f"{written}_tokens") or 0),
        reasoning=int(after.get("reasoning_tokens") or 0),
    )
    # A negative number of tokens would give the cap of costs back what other requests spent.
    counts = (found.prompt, found.cached, found.completion, found.reasoning)
    return found if all(0 <= count <= _MOST_TOKENS for count in counts) else None
