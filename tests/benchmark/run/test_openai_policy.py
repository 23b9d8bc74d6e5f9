"""The openai policy against a local server: what is sent, read, retried and refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from kernelgym.benchmark.run import openai_policy as remote
from kernelgym.benchmark.run.generations import AnswerRequest, Generation, TokenUsage
from kernelgym.benchmark.run.openai_policy import EndpointSampling, OpenAIPolicy
from kernelgym.benchmark.run.policies import (
    PolicyOptions,
    ProviderFailure,
    RunStopped,
    make_policy,
)
from kernelgym.errors import UnknownName, UsageError
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Message
from support.chat_server import ChatServer, Faults, chat_server

MESSAGES = (Message("system", "s"), Message("user", "u"))


def asked(seed: int = 7) -> AnswerRequest:
    return AnswerRequest(SAMPLE_PROBLEM, 0, 0, MESSAGES, seed)


def ask(server: ChatServer, count: int = 1, **options: Any) -> list[Generation]:
    sampling = options.pop("sampling", None)

    async def all_of_them() -> list[Generation]:
        policy = OpenAIPolicy(
            *(options.pop("model", "kernel-writer"), server.url), sampling=sampling, **options
        )
        try:
            await policy.check()
            return [await policy.answer(asked(number)) for number in range(count)]
        finally:
            await policy.close()

    return asyncio.run(all_of_them())


def test_request_says_what_was_asked_for() -> None:
    sampling = EndpointSampling(
        temperature=0.5, top_p=0.9, max_tokens=99, seeded=True, extra_body={"top_k": 4}
    )
    with chat_server() as server:
        (found,) = ask(server, sampling=sampling, key="secret")
    (body,), (headers,) = server.bodies, server.headers
    assert body == {
        **{"model": "kernel-writer", "temperature": 0.5, "top_p": 0.9, "max_tokens": 99},
        **{"seed": 0, "top_k": 4},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    }
    assert headers["authorization"] == "Bearer secret"
    assert found.request_id == "req-1" and found.model == "kernel-writer-0725"
    assert found.usage is not None and found.usage.cached == found.usage.prompt // 2 > 0
    assert found.tries == 1 and found.latency_s > 0.0 and "ModelNew" in found.text


def test_options_that_are_not_given_are_not_sent() -> None:
    with chat_server() as server:
        ask(server)
    assert set(server.bodies[0]) == {"model", "messages", "max_tokens"}


def test_responses_api_is_spoken_too() -> None:
    with chat_server() as server:
        (found,) = ask(server, api="responses", sampling=EndpointSampling(reasoning_effort="low"))
    (body,) = server.bodies
    assert body["reasoning"] == {"effort": "low"} and body["max_output_tokens"] == 8192
    assert body["input"][1]["content"] == "u" and body["store"] is False
    assert found.reasoning == "I think." and found.answer.startswith("<think>\nI think.\n</think>")
    assert found.usage is not None and (found.usage.cached, found.usage.reasoning) == (3, 2)


def test_failed_requests_are_made_again_and_counted() -> None:
    with chat_server(Faults(busy=0.5, broken=0.1), seed=1) as server:
        found = ask(server, 6, sampling=EndpointSampling(seeded=True), retries=8)
    assert sum(each.tries for each in found) == len(server.log) > 6
    assert len(server.answered) == 6


@pytest.mark.parametrize("fault", ["stalled", "dropped"])
def test_stall_and_reset_are_made_again(fault: str) -> None:
    faults: Any = {fault: 0.5, "stall_s": 3.0}
    with chat_server(Faults(**faults), seed=1) as server:
        found = ask(server, 3, sampling=EndpointSampling(seeded=True), timeout_s=0.3, retries=9)
    assert len(server.answered) == 3 and {what for _, what in server.log} == {"answered", fault}
    assert sum(each.tries for each in found) == len(server.log)


def test_what_stays_failed_is_a_failure() -> None:
    with chat_server(Faults(busy=1.0)) as server, pytest.raises(ProviderFailure) as failed:
        ask(server, retries=2)
    assert failed.value.tries == len(server.log) == 3 and "HTTP 429: " in str(failed.value)
    with chat_server(Faults(dropped=1.0)) as server, pytest.raises(ProviderFailure) as failed:
        ask(server, retries=1)
    assert failed.value.tries == 2


def test_failures_in_a_row_stop_the_run() -> None:
    async def many(server: ChatServer) -> int:
        policy = OpenAIPolicy("kernel-writer", server.url, retries=0)
        for number in range(100):
            try:
                await policy.answer(asked(number))
            except ProviderFailure:
                continue
            except RunStopped as stopped:
                assert "16 requests to" in str(stopped)
                await policy.close()
                return number
        return -1

    with chat_server(Faults(broken=1.0)) as server:
        assert asyncio.run(many(server)) == 15


def replies(status: int, message: str, times: int = 10**9) -> Any:
    left = [times]

    def reply(body: Mapping[str, Any]) -> Any:
        left[0] -= 1
        return (status, {"error": {"message": message}}) if left[0] >= 0 else None

    return reply


def test_silent_server_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote._CHECK_S < 8.0
    monkeypatch.setattr(remote, "_CHECK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        policy = OpenAIPolicy("m", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        begun = time.monotonic()
        with pytest.raises(UsageError, match=r"no server answers at .*: not within 0.3 s; check"):
            asyncio.run(policy.check())
    assert time.monotonic() - begun < 2.0, "all tries together"


@pytest.mark.parametrize(
    ("status", "message", "error", "said"),
    [
        (400, "temperature must be below 2", UsageError, "refuses the request for model"),
        (402, "pay first", RunStopped, "no credit left"),
        (403, "not yours", UsageError, "refuses the key with HTTP 403"),
        (400, "maximum context length is 4096 tokens", ProviderFailure, "HTTP 400"),
        (404, "nothing here", UsageError, "HTTP 404"),
    ],
)
def test_refusals_say_what_to_do(
    status: int, message: str, error: type[Exception], said: str
) -> None:
    with (
        chat_server(reply=replies(status, message)) as server,
        pytest.raises(error, match=said),
    ):
        ask(server, retries=0)
    assert len(server.log) == 1


def test_unknown_model_is_told_with_the_known_ones() -> None:
    with chat_server() as server, pytest.raises(UnknownName, match="kernel-writer, other"):
        ask(server, model="gpt-none")


def test_unknown_model_is_told_by_the_check_alone() -> None:
    with chat_server() as server, pytest.raises(UnknownName, match="kernel-writer, other"):
        asyncio.run(OpenAIPolicy("gpt-none", server.url).check())
    assert [body["max_tokens"] for body in server.bodies] == [1], "one token was asked for"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_model_that_is_served_and_not_listed_passes_the_check(
    api: Literal["chat", "responses"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_ids", lambda listed: ["another"])
    with chat_server() as server:
        asyncio.run(OpenAIPolicy("kernel-writer", server.url, api=api).check())
    assert len(server.bodies) == 1


def test_check_imports_no_client() -> None:
    code = (
        "import asyncio, sys\n"
        "from kernelgym.benchmark.run.openai_policy import OpenAIPolicy\n"
        "try:\n"
        "    asyncio.run(OpenAIPolicy('m', 'http://127.0.0.1:9/v1').check())\n"
        "except ValueError as error:\n"
        "    assert 'no server answers' in str(error), error\n"
        "    sys.exit('openai' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_key_and_wrong_url_are_told_at_once() -> None:
    begun = time.monotonic()
    with chat_server() as server, pytest.raises(UsageError, match="refuses the key"):
        ask(server, key="wrong")
    with pytest.raises(UsageError, match="no server answers at"):
        ask(server)  # it is gone
    assert time.monotonic() - begun < 10.0, "promised within 10 s"


def test_filtered_answer_is_an_answer_without_text() -> None:
    reply = replies(400, "blocked by the content management policy", 1)
    with chat_server(reply=reply) as server:
        filtered, plain = ask(server, 2)
    assert filtered.is_empty and filtered.finish_reason == "content_filter"
    assert not plain.is_empty


def test_model_without_a_system_role_gets_one_message() -> None:
    def no_system(body: Mapping[str, Any]) -> Any:
        if body["messages"][0]["role"] == "system":
            return 400, {"error": {"message": "System role not supported"}}
        return None

    with chat_server(reply=no_system) as server:
        ask(server, 2)
    assert [body["messages"] for body in server.bodies[1:]] == [
        [{"role": "user", "content": "s\n\nu"}]
    ] * 2


def test_other_name_of_the_limit_is_learned() -> None:
    def renamed(body: Mapping[str, Any]) -> Any:
        if "max_tokens" in body:
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead."}}
        return None

    with chat_server(reply=renamed) as server:
        ask(server, 2)
    assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 8192, 8192]


def test_answer_that_is_no_json_is_a_failure() -> None:
    with (
        chat_server(reply=lambda body: (200, "<html>")) as server,
        pytest.raises(ProviderFailure, match="is not JSON, or cut short"),
    ):
        ask(server, retries=0)


def test_answer_whose_body_is_cut_short_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgym.benchmark.run.openai_policy._MOST_DELAY_S", 0.0)
    bodies: list[Any] = []

    def reply(body: Mapping[str, Any]) -> Any:
        bodies.append(body)
        return (200, '{"choices": [{"mess') if len(bodies) == 1 else None

    with chat_server(reply=reply) as server:
        (found,) = ask(server, retries=1)
    assert len(bodies) == 2 and found.tries == 2 and found.text


def test_ping_asks_for_one_token() -> None:
    async def ping(server: ChatServer) -> Generation:
        policy = OpenAIPolicy("kernel-writer", server.url)
        try:
            return await policy.ping()
        finally:
            await policy.close()

    with chat_server() as server:
        found = asyncio.run(ping(server))
    assert server.bodies[0]["max_tokens"] == 1 and found.usage == TokenUsage(
        **json.loads(json.dumps(found.to_dict()["usage"]))
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs --model"),
        ({"model": "m", "endpoint": "localhost:1"}, "takes the address of an API"),
        ({"model": "m", "api": "soap"}, "unknown API 'soap'"),
        ({"model": "m", "temperature": -1.0}, "--temperature must not be negative"),
        ({"model": "m", "top_p": 0.0}, "--top-p must lie in"),
        ({"model": "m", "max_tokens": 0}, "--max-tokens must be at least 1"),
        ({"model": "m", "timeout_s": 0.0}, "--timeout-s must be above 0"),
        ({"model": "m", "rpm": 0.0}, "a limit per minute is a number above 0"),
        ({"model": "m", "extra_body": {"n": 4}}, "--extra-body must not set 'n'"),
        ({"model": "m", "shares": (1.0, 0.0, 0.0)}, "--shares .* has no use with policy 'openai'"),
        ({"model": "m", "seeded": True, "api": "responses"}, "--seeded has no use"),
    ],
)
def test_bad_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_policy("openai", PolicyOptions(**options))


def test_missing_key_is_told_before_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("MY_KEY", raising=False)
    for options in (PolicyOptions(model="m"), PolicyOptions(model="m", api_key_env="MY_KEY")):
        policy = make_policy("openai", options)
        with pytest.raises(UsageError, match=r"the variable (OPENAI_API|MY)_KEY is not set"):
            asyncio.run(policy.check())
    local = make_policy("openai:m", PolicyOptions(endpoint="http://localhost:8000/v1"))
    assert getattr(local, "missing", None) == "" and local.settings["model"] == "m"
    monkeypatch.setenv("MY_KEY", "secret")
    policy = make_policy("openai", PolicyOptions(model="m", api_key_env="MY_KEY"))
    assert "secret" not in json.dumps(dict(policy.settings))


def test_tokens_of_a_request_above_tpm_are_refused() -> None:
    with chat_server() as server, pytest.raises(UsageError, match="--tpm is 100"):
        ask(server, tpm=100)
    assert not server.bodies


def test_server_that_sends_a_byte_now_and_then_is_not_waited_for() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.1)

    async def wait() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        policy = OpenAIPolicy("any", url, retries=0, timeout_s=0.5)
        try:
            with pytest.raises(ProviderFailure, match=r"more than 0\.5 s"):
                await asyncio.wait_for(policy.answer(asked()), 30.0)
        finally:
            await policy.close()
            server.close()

    asyncio.run(wait())


def test_answer_too_large_for_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_MOST_BYTES", 1 << 20)
    body = {"choices": [{"message": {"content": "x" * (2 << 20)}}]}
    with chat_server(reply=lambda asked: (200, body)) as server:
        with pytest.raises(ProviderFailure, match="larger than 1 MiB"):
            ask(server, retries=0)
