"""Bodies of chat and responses APIs, as servers of many makes write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.answers.parsing import parse
from kernelgym.benchmark.run.generations import Generation, TokenUsage
from kernelgym.benchmark.run.replies import chat_reply, responses_reply


def chat(message: dict[str, Any], **more: Any) -> Generation:
    choice = {"message": message, "finish_reason": more.pop("reason", "stop")}
    return chat_reply({"choices": [choice], **more})


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_of_local_servers_is_thought(name: str) -> None:
    found = chat({"content": "<KERNEL>class ModelNew: ...</KERNEL>", name: "I think.\n"})
    reply = parse(found.answer, "triton")
    assert reply.thought == "I think." and reply.kernel is not None and not reply.defects


def test_tags_inside_thinking_do_not_end_it() -> None:
    found = chat({"content": "answer", "reasoning": "a </think> b <KERNEL>c</KERNEL>"})
    reply = parse(found.answer, "triton")
    assert reply.thought == "a  b <KERNEL>c</KERNEL>" and reply.kernel is None


def test_halves_of_characters_in_an_answer_are_replaced() -> None:
    half = "a\ud800b"
    found = chat({"content": half, "reasoning": half}, reason=half, model=half, id=half)
    again = Generation.from_dict({"text": half, "reasoning": half})
    for text in (*found.to_dict().values(), *again.to_dict().values(), found.answer):
        assert "\ud800" not in str(text)
    assert found.text == found.reasoning == again.text == "a?b"


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length"])
def test_limit_of_tokens_cuts_an_answer_off(reason: str) -> None:
    assert chat({"content": "x"}, reason=reason).answer.cut_off
    assert not chat({"content": "x"}, reason=None).answer.cut_off


def test_parts_refusals_and_nothing_are_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    found = chat({"content": [thinking, {"type": "text", "text": "x"}]})
    assert (found.text, found.reasoning) == ("x", "hm")
    assert chat({"content": None, "refusal": "No."}).text == "No."
    assert chat({"content": None}).is_empty and chat({}).is_empty


def test_usage_is_read_or_missing() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 5}
    assert chat({"content": ""}, usage=usage).usage == TokenUsage(9, 0, 5, 0)
    usage["prompt_tokens_details"] = {"cached_tokens": 4}  # type: ignore[assignment]
    usage["completion_tokens_details"] = None  # type: ignore[assignment]
    found = chat({"content": ""}, usage=usage).usage
    assert (
        found == TokenUsage(9, 4, 5, 0) and found.tokens.prefill == 5 and found.tokens.cached == 4
    )
    assert chat({"content": ""}, usage=None).usage is chat({"content": ""}, usage={}).usage is None


@pytest.mark.parametrize("forged", [-1, -(10**9), 10**400])
def test_usage_that_counts_nothing_is_missing(forged: int) -> None:
    for usage in (
        {"prompt_tokens": forged, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": forged},
        {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": forged}},
    ):
        assert chat({"content": "x"}, usage=usage).usage is None


def test_incomplete_response_tells_why() -> None:
    body: dict[str, Any] = {"status": "incomplete", "output": []}
    body["incomplete_details"] = {"reason": "max_output_tokens"}
    assert responses_reply(body).finish_reason == "length"
    body["incomplete_details"] = {"reason": "content_filter"}
    assert responses_reply(body).finish_reason == "content_filter"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
READ = (ValueError, KeyError, TypeError, IndexError, AttributeError)


@given(JSON, JSON)
def test_any_body_is_read_or_refused(content: Any, usage: Any) -> None:
    """What the policy takes for an unreadable answer is all that a body can raise."""
    for body in (
        content,
        {"choices": content},
        {"choices": [{"message": {"content": content}}], "usage": usage},
        {"output": content, "usage": usage},
        {"output": [{"type": "message", "content": content}]},
    ):
        for read in (chat_reply, responses_reply):
            try:
                found = read(body)
            except READ:
                continue
            assert isinstance(found.text, str) and isinstance(found.answer, str)


@given(
    st.builds(Generation, st.text(), st.text(), usage=st.none() | st.builds(TokenUsage, st.just(3)))
)
def test_generation_comes_back_from_its_line(found: Generation) -> None:
    assert Generation.from_dict(found.to_dict() | {"later": 1, "problem": "p"}) == found
