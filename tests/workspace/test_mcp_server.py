"""The tools of a workspace over MCP, by the official SDK's own client."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from kernelgym.workspace.mcp_server import _readable, create_mcp_server
from support.serve_process import serving
from support.workspaces import KERNELGYM, RIGHT, marked, recorded, session

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def server(url: str, record: Any, *more: str) -> list[str]:
    """Return the command of an MCP server whose kernels a service judges."""
    given = ("--language", "cpp", "--evaluator", url, "--record", str(record), *more)
    return [*KERNELGYM, "mcp", "Synthetic/L1/2", *given]


def test_tools_and_resources_of_a_session(tmp_path) -> None:
    found = session(tmp_path, budget=2)

    async def play() -> None:
        async with Client(create_mcp_server(found)) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["check", "time", "profile", "submit"]
            uris = [str(each.uri) for each in (await client.list_resources()).resources]
            texts = [(await client.read_resource(uri)).contents[0].text for uri in uris]
            assert "# The problem: " in texts[0] and texts[1] == "No tool was called yet."
            assert json.loads(texts[2])["calls_left"] == 2
            wrong = await client.call_tool("check", {"source": marked("wrong")})
            assert not wrong.is_error and wrong.structured_content["status"] == "wrong"
            await client.call_tool("time", {"source": RIGHT})
            refused = await client.call_tool("time", {"source": RIGHT})
            assert refused.is_error and "used up" in refused.content[0].text
            final = await client.call_tool("submit", {"source": RIGHT})
            assert "Submitted: score" in final.content[0].text
            told = (await client.read_resource(uris[1])).contents[0].text
            assert "## Call 1: check, wrong" in told and "## Call 3: submit, correct" in told

    asyncio.run(play())
    assert len(recorded(tmp_path / "t.jsonl").trajectory.turns) == 3


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("lint", {"source": RIGHT}, "known: check, time"),
        ("check", {}, "source is missing"),
        ("check", {"source": 3}, "source is missing"),
        ("check", {"source": "x" * 1_000_001}, "1000000 are allowed"),
        ("check", {"source": marked("unavailable")}, "the judge failed"),
    ],
)
def test_call_that_cannot_be_made_is_an_error_and_is_not_counted(
    tmp_path, name, arguments, told
) -> None:
    found = session(tmp_path)

    async def play() -> None:
        async with Client(create_mcp_server(found)) as client:
            result = await client.call_tool(name, arguments)
            assert result.is_error and told in result.content[0].text
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource("kernelgym://secrets")

    asyncio.run(play())
    assert found.calls_left == 3


def test_kernel_of_a_megabyte_is_judged_over_standard_streams(tmp_path) -> None:
    kernel = f"{RIGHT}# {'x' * 900_000}\n"

    async def play(url: str) -> None:
        command, *arguments = server(url, tmp_path / "t.jsonl", "--budget", "2")
        parameters = StdioServerParameters(command=command, args=arguments)
        async with Client(stdio_client(parameters)) as client:
            result = await client.call_tool("check", {"source": kernel})
            assert result.structured_content["status"] == "correct"

    with serving(tmp_path / "state") as (_, url):
        asyncio.run(play(url))
    record = recorded(tmp_path / "t.jsonl")
    assert record.trajectory.turns[0].reply.kernel.source == kernel
    assert record.trajectory.ended == "cut"


def test_lone_surrogates_and_lines_that_are_no_json_leave_the_server_answering(tmp_path) -> None:
    """The SDK's client cannot send half of a surrogate pair, so this one is written by hand."""
    source = "\ud800# " + "\udc00" * 100_000
    call = {"name": "check", "arguments": {"source": source}}
    messages = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
        {"id": 3, "method": "resources/read", "params": {"uri": "kernelgym://budget"}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **each}) for each in messages]
    lines[2:2] = ["{", '"\\ud800', "\x00"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with serving(tmp_path / "state") as (_, url):
        process = subprocess.Popen(server(url, tmp_path / "t.jsonl"), **pipes)
        try:
            process.stdin.write("".join(f"{line}\n" for line in lines))
            process.stdin.flush()
            answers: dict[int, Any] = {}
            while 3 not in answers or 2 not in answers:
                answer = json.loads(process.stdout.readline())
                if isinstance(answer.get("id"), int):
                    answers[answer["id"]] = answer
            process.stdin.close()
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
    assert not answers[2]["result"]["isError"]
    assert answers[2]["result"]["structuredContent"]["calls_left"] == 29


@pytest.mark.slow
def test_server_whose_input_is_no_pipe_ends_with_it(tmp_path) -> None:
    with serving(tmp_path / "state") as (_, url):
        command = server(url, tmp_path / "t.jsonl")
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert ended.returncode == 0


def test_message_keeps_pairs_and_escaped_backslashes() -> None:
    for text in ("plain", "\U0001f600", "\\ud800", "a\\\\ud83d", "\n\x85\u2028"):
        assert json.loads(_readable(json.dumps({"a": text}).encode())) == {"a": text}
    assert json.loads(_readable(json.dumps({"a": "\ud800"}).encode())) == {"a": "\ufffd"}
