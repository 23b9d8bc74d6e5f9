"""Translate between SDK 0.38 and skyrl 0.4.0, as an ASGI application around skyrl's.

What it changes:

- ``/asample`` promises carry ``sample_sequence_ids``, one per sample asked for;
- ``/load_weights`` with a ``session_id`` makes a model from a checkpoint: skyrl creates one and
  loads into it, and later requests that name the SDK's id reach that model;
- ``/sessions/*/finish`` is answered.

Everything else passes through. It keeps names of models in memory: they end with the API, as the
SDK's clients do.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
from tinker.proto import tinker_public_pb2 as proto

__all__ = ["Bridge"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_API = "/api/v1"
_PROTOBUF = "application/x-protobuf"


class Bridge:
    """Wraps skyrl's application.

    Args:
        app: An ASGI application that speaks skyrl 0.4.0's form of the Tinker API.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._names: dict[str, str] = {}
        """The SDK's ids of models made from checkpoints -> skyrl's."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        path, body = scope["path"], await _body(receive)
        if path.startswith(f"{_API}/sessions/") and path.endswith("/finish"):
            await _answer(send, 200, {})
            return
        body = self._renamed(_header(scope, b"content-type"), body)
        if path == f"{_API}/load_weights" and json.loads(body).get("session_id"):
            status, found = await self._create_from(json.loads(body))
            await _answer(send, status, found)
            return
        if path == f"{_API}/asample":
            status, found = await self._post("/asample", json.loads(body))
            if status == 200:
                count = json.loads(body).get("num_samples", 1)
                found["sample_sequence_ids"] = [uuid.uuid4().hex for _ in range(count)]
            await _answer(send, status, found)
            return
        await self._app(_with_length(scope, len(body)), _once(body, receive), send)

    def _renamed(self, kind: str, body: bytes) -> bytes:
        if not self._names:
            return body
        if kind.startswith(_PROTOBUF):
            message = proto.ForwardBackwardRequest()
            message.ParseFromString(body)
            message.model_id = self._names.get(message.model_id, message.model_id)
            return bytes(message.SerializeToString())
        try:
            fields = json.loads(body)
        except ValueError:
            return body
        known = isinstance(fields, dict) and self._names.get(fields.get("model_id") or "")
        return json.dumps({**fields, "model_id": known}).encode() if known else body

    async def _create_from(self, asked: dict[str, Any]) -> tuple[int, Any]:
        """Create a model and load a checkpoint into it; returns the loading's promise."""
        status, about = await self._post("/weights_info", {"tinker_path": asked["path"]})
        if status != 200:
            return status, about
        create = {
            "session_id": asked["session_id"],
            "base_model": asked.get("base_model") or about["base_model"],
            "lora_config": {"rank": about["lora_rank"], "seed": 0},
        }
        status, made = await self._post("/create_model", create)
        if status != 200:
            return status, made
        status, ended = await self._post("/retrieve_future", {"request_id": made["request_id"]})
        if status != 200:
            return status, ended
        self._names[f"{asked['session_id']}:train:{asked['model_seq_id']}"] = made["model_id"]
        load = {
            "model_id": made["model_id"],
            "path": asked["path"],
            "optimizer": asked["optimizer"],
        }
        return await self._post("/load_weights", load)

    async def _post(self, path: str, content: dict[str, Any]) -> tuple[int, Any]:
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://skyrl") as client:
            found = await client.post(f"{_API}{path}", json=content, timeout=300)
            return found.status_code, found.json()


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _once(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, and then what comes after it."""
    given = False

    async def give() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _with_length(scope: Scope, length: int) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode() for key, value in scope["headers"] if key == name), "")


async def _answer(send: Send, status: int, content: Any) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
