"""Another project's app behind the keys of the verdict service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from kernelgym.serve.key_gate import KeyGate
from kernelgym.serve.keys import KeyRing, Tenant, add_key

ROLES = {"trainer": ("judge",), "reader": ("admin",), "slow": ("judge",)}


def behind_keys(folder: Path) -> tuple[KeyGate, dict[str, str]]:
    """Return an app of one page behind keys, and the keys by name."""
    app = FastAPI()
    app.get("/")(lambda: "inside")
    file = folder / "keys.yaml"
    per_minute = {"slow": 1}
    keys = {
        name: add_key(file, Tenant(name=name, roles=roles, per_minute=per_minute.get(name, 6000)))
        for name, roles in ROLES.items()
    }
    return KeyGate(app, KeyRing(file)), keys


def answered(gate: KeyGate, *keys: str) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [await client.get("/", headers={"Authorization": f"Bearer {k}"}) for k in keys]

    return asyncio.run(ask())


@pytest.mark.parametrize(("name", "status"), [("trainer", 200), ("reader", 403), ("", 401)])
def test_request_with_a_key_is_answered_by_its_role(tmp_path: Path, name: str, status: int) -> None:
    gate, keys = behind_keys(tmp_path)
    (response,) = answered(gate, keys.get(name, "kg_wrong"))
    assert response.status_code == status
    assert (
        response.json() == "inside"
        if status == 200
        else "key" in response.json()["error"]["message"]
    )


def test_request_above_the_limit_of_a_key_waits(tmp_path: Path) -> None:
    gate, keys = behind_keys(tmp_path)
    statuses = [each.status_code for each in answered(gate, *[keys["slow"]] * 3)]
    assert statuses[0] == 200 and statuses[-1] == 429


def test_websocket_without_a_key_is_closed_before_it_opens(tmp_path: Path) -> None:
    gate, _ = behind_keys(tmp_path)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(gate({"type": "websocket", "headers": []}, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
