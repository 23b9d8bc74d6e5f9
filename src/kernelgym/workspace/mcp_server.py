"""The tools of a workspace as a server of the Model Context Protocol (MCP), on standard streams.

Contract: the server ends once its client has closed standard input, also by being killed, or a
signal has come. A kernel is given as text. Half of a surrogate pair in it, which the SDK does not
take, is read as U+FFFD. Results that refuse a call have ``isError``, and the call is not counted.

Resources: ``kernelgym://problem`` is the task, ``kernelgym://feedback`` the feedback so far, and
``kernelgym://budget`` the account. Needs the extra ``agents``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from kernelgym.machine import installed_version
from kernelgym.serve.refusal import Refusal
from kernelgym.workspace.folder import task_text
from kernelgym.workspace.session import TOOLS, ToolSession

_LONGEST_LINE = 1 << 26
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "source": {
            "type": "string",
            "description": "The whole text of the kernel's Python module, which defines ModelNew.",
        }
    },
    "required": ["source"],
}
_RESOURCES = {
    "problem": ("The task: reference, contract, rules, what counts.", "text/markdown"),
    "feedback": ("The feedback on every call so far.", "text/markdown"),
    "budget": ("The calls that are left, and whether a kernel was submitted.", "application/json"),
}


def create_mcp_server(session: ToolSession) -> Server[Any]:
    """Return the MCP server of a session."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(name=name, description=TOOLS[name], input_schema=_SCHEMA)
            for name in session.tools
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        source = (params.arguments or {}).get("source")
        try:
            if not isinstance(source, str):
                raise Refusal(422, "invalid", "source is missing: give the kernel's text")
            answer = await session.call(params.name, source)
        except Refusal as refusal:
            return types.CallToolResult(content=[_text(refusal.message)], is_error=True)
        return types.CallToolResult(
            content=[_text(str(answer))], structured_content=answer.to_dict()
        )

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        resources = [
            types.Resource(uri=_uri(name), name=name, description=told, mime_type=kind)
            for name, (told, kind) in _RESOURCES.items()
        ]
        return types.ListResourcesResult(resources=resources)

    async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        name = next((name for name in _RESOURCES if _uri(name) == uri), None)
        if name is None:
            known = ", ".join(map(_uri, _RESOURCES))
            raise MCPError(
                types.INVALID_PARAMS, f"there is no resource {uri!r}; known: {known}", None
            )
        contents = types.TextResourceContents(
            uri=uri, mime_type=_RESOURCES[name][1], text=_resource(session, name)
        )
        return types.ReadResourceResult(contents=[contents])

    return Server(
        "kernelgym",
        version=installed_version("kernelgym"),
        instructions=(
            f"Write a fast kernel for {session.problem.id}. Read {_uri('problem')} first, and end "
            "with submit."
        ),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


async def serve_stdio(session: ToolSession) -> None:
    """Answer one client on standard input and output until it closes them."""
    server = create_mcp_server(session)
    kind = os.fstat(sys.stdin.fileno()).st_mode
    # The loop can wait for these alone; a file or the null device is at its end at once.
    is_pipe = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or sys.stdin.isatty()
    lines: Any = await _Lines.of_stdin() if is_pipe else None
    try:
        async with stdio_server(stdin=lines) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client was killed during a call, whose answer nothing reads


class _Lines:
    """Lines of standard input, in the form of an asynchronous file as the SDK reads it.

    The SDK reads a file in a thread, which a signal cannot end while the client sends nothing.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def of_stdin(cls) -> _Lines:
        """Return the lines of this process's standard input."""
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        return cls(reader)

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await self._reader.readline():
            yield _readable(line)


def _readable(line: bytes) -> str:
    """Return a message's text without lone surrogates."""
    if _ESCAPED_SURROGATE.search(line):
        try:
            text = json.dumps(json.loads(line), ensure_ascii=False)
        except (ValueError, RecursionError):
            text = line.decode("utf-8", "replace")  # the SDK says what is wrong with it
        return _SURROGATE.sub("\ufffd", text)
    return line.decode("utf-8", "replace")


def _resource(session: ToolSession, name: str) -> str:
    if name == "problem":
        return task_text(session)
    if name == "budget":
        return json.dumps(session.state())
    told = [
        f"## Call {number}: {call['tool']}, {call['status']}\n\n{call['feedback']}"
        for number, call in enumerate(session.calls(), 1)
    ]
    return "\n\n".join(told) or "No tool was called yet."


def _uri(name: str) -> str:
    return f"kernelgym://{name}"


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)
