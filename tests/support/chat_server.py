"""A chat-API server on loopback, with seeded faults and a log: what provider policies talk to.

It answers ``/v1/chat/completions``, ``/v1/responses`` and ``/v1/models``. What a request gets is a
function of the server's seed, the request's body and how often that body came before: the same
client gets the same answers and faults in any order. An answer follows from the request's ``seed``
field and its last message.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym.testing import SAMPLE_KERNELS

__all__ = ["ChatServer", "Faults", "chat_server"]

Reply = Callable[[Mapping[str, Any]], Any]
"""Makes of a request's body: None for the usual, (status, body), or an answer's text."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of requests that go wrong."""

    busy: float = 0.0
    """429, with Retry-After."""
    broken: float = 0.0
    """500."""
    dropped: float = 0.0
    """The connection is closed without an answer."""
    stalled: float = 0.0
    """No answer for `stall_s`."""
    stall_s: float = 5.0


ISSUE = Faults(busy=0.10, broken=0.05, dropped=0.02, stalled=0.01)


@dataclass
class ChatServer:
    """A running server."""

    faults: Faults
    seed: int
    reply: Reply | None
    delay_s: float
    port: int = 0
    log: list[tuple[int | None, str]] = field(default_factory=list)
    """(seed of the request, what became of it) of every request for an answer."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0
    _came: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def answered(self) -> list[int | None]:
        """Seeds of the requests that got an answer."""
        return [seed for seed, what in self.log if what == "answered"]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*gone):
            while (head := await reader.readuntil(b"\r\n\r\n")) is not None:
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self._answer(lines[0].split()[1], headers, body, writer):
                    break
        writer.close()

    async def _answer(
        self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        if headers.get("authorization") == "Bearer wrong":
            return await _send(writer, 401, _error("Incorrect API key provided"))
        if path == "/v1/models":
            models = [{"id": name, "object": "model"} for name in ("kernel-writer", "other")]
            return await _send(writer, 200, {"object": "list", "data": models})
        if path not in ("/v1/chat/completions", "/v1/responses"):
            return await _send(writer, 404, _error(f"no such path: {path}"))
        asked = json.loads(body)
        self.bodies.append(asked)
        self.headers.append(headers)
        seed = asked.get("seed")
        if asked["model"] not in ("kernel-writer", "other"):
            return await _send(writer, 404, _error(f"The model {asked['model']!r} does not exist"))
        chance = self._chance(body)
        fault = chance.random()
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self.delay_s)
            faults = self.faults
            if (fault := fault - faults.busy) < 0:
                self.log.append((seed, "busy"))
                return await _send(writer, 429, _error("slow down"), {"Retry-After": "0.02"})
            if (fault := fault - faults.broken) < 0:
                self.log.append((seed, "broken"))
                return await _send(writer, 500, _error("oops"))
            if (fault := fault - faults.dropped) < 0:
                self.log.append((seed, "dropped"))
                return False
            if (fault := fault - faults.stalled) < 0:
                self.log.append((seed, "stalled"))
                await asyncio.sleep(faults.stall_s)
                return False
            special = None if self.reply is None else self.reply(asked)
            if isinstance(special, tuple):
                self.log.append((seed, str(special[0])))
                return await _send(writer, *special)
            text = _text(asked) if special is None else special
            self.log.append((seed, "answered"))
            made = _chat(asked, text) if path.endswith("completions") else _responses(asked, text)
            headers = {"x-request-id": f"req-{len(self.log)}"}
            if asked.get("stream"):
                headers["Content-Type"] = "text/event-stream"
                made = _events(made)
            return await _send(writer, 200, made, headers)
        finally:
            self._now -= 1

    def _chance(self, body: bytes) -> random.Random:
        digest = hashlib.sha256(body).hexdigest()
        self._came[digest] += 1
        return random.Random(f"{self.seed}:{digest}:{self._came[digest]}")


@contextlib.contextmanager
def chat_server(
    faults: Faults | None = None,
    *,
    seed: int = 0,
    reply: Reply | None = None,
    delay_s: float = 0.0,
) -> Iterator[ChatServer]:
    """Run a server in a thread of its own."""
    made = ChatServer(faults or Faults(), seed, reply, delay_s)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(made.handle, "127.0.0.1", 0, limit=1 << 24)
        made.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()

    stop = asyncio.Event()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(10.0)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10.0)


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    body: Any,
    headers: Mapping[str, str] | None = None,
) -> bool:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
    named = {"Content-Type": "application/json"} | dict(headers or {})
    head += [f"{name}: {value}" for name, value in named.items()]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + data)
    await writer.drain()
    return True


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "error", "code": None}}


def _text(asked: Mapping[str, Any]) -> str:
    said = json.dumps(asked.get("messages") or asked.get("input"))
    mark = hashlib.sha256(f"{asked.get('seed')}{said}".encode()).hexdigest()[:12]
    source = SAMPLE_KERNELS["triton"].source
    return f"<KERNEL>\n```python\n{source}# {mark}\n```\n</KERNEL>"


def _tokens(asked: Mapping[str, Any]) -> int:
    return len(json.dumps(asked.get("messages") or asked.get("input"))) // 4


def _chat(asked: Mapping[str, Any], message: Any) -> dict[str, Any]:
    made = {"role": "assistant", "content": message} if isinstance(message, str) else message
    reason = made.pop("finish_reason", "stop")
    written = len(str(made.get("content") or "")) // 4
    return {
        **{"id": "chatcmpl-1", "object": "chat.completion", "model": f"{asked['model']}-0725"},
        "created": 1,
        "choices": [{"index": 0, "message": made, "finish_reason": reason}],
        "usage": {
            **{"prompt_tokens": _tokens(asked), "completion_tokens": written},
            "total_tokens": _tokens(asked) + written,
            "prompt_tokens_details": {"cached_tokens": _tokens(asked) // 2},
            "completion_tokens_details": {"reasoning_tokens": written // 4},
        },
    }


def _events(made: Mapping[str, Any]) -> str:
    """Return a chat completion as the events of a stream: one delta, the usage, the end."""
    (choice,) = made["choices"]
    shared = {"id": made["id"], "object": "chat.completion.chunk", "model": made["model"]}
    delta = {"index": 0, "delta": choice["message"], "finish_reason": choice["finish_reason"]}
    chunks = [{**shared, "choices": [delta]}]
    chunks.append({**shared, "choices": [], "usage": made["usage"]})
    lines = [*(json.dumps({"created": 0, **chunk}) for chunk in chunks), "[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines)


def _responses(asked: Mapping[str, Any], text: str) -> dict[str, Any]:
    written = len(text) // 4
    return {
        **{"id": "resp-1", "object": "response", "model": asked["model"], "status": "completed"},
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think."}]},
            {"type": "message", "content": [{"type": "output_text", "text": text}]},
        ],
        "usage": {
            **{"input_tokens": _tokens(asked), "output_tokens": written},
            "input_tokens_details": {"cached_tokens": 3},
            "output_tokens_details": {"reasoning_tokens": 2},
        },
    }
