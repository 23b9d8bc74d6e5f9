"""The HTTP server of a workspace: what its key may do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from kernelgym.serve.keys import KeyRing, Tenant, add_key
from kernelgym.workspace.server import create_tools_app
from kernelgym.workspace.session import ToolSession
from support.workspaces import RIGHT, marked, session

OTHER = {"problem": {"id": "Synthetic/L1/2", "digest": "0"}}


@contextlib.asynccontextmanager
async def serving(found: ToolSession, folder) -> AsyncIterator[httpx.AsyncClient]:
    key = add_key(folder / "keys.yaml", Tenant(name="agent"))
    app = create_tools_app(found, KeyRing(folder / "keys.yaml"))
    headers = {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers
    ) as client:
        yield client


def ask(folder, method: str, path: str, found: ToolSession | None = None, **given):
    async def once() -> httpx.Response:
        async with serving(found or session(folder), folder) as client:
            return await client.request(method, path, **given)

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/workspace/check", {"source": RIGHT, "problem": "Synthetic/L1/2"}),
        ("POST", "/v1/jobs", {"jobs": [OTHER]}),
        ("GET", "/v1/info", None),
        ("POST", "/v1/workspaces/other/check", {"source": RIGHT}),
    ],
)
def test_key_used_for_anything_but_its_workspace_is_refused_with_403(
    tmp_path, method, path, body
) -> None:
    found = session(tmp_path)
    answer = ask(tmp_path, method, path, found, json=body)
    assert answer.status_code == 403 and not found.calls()
    assert "on Sample/L1/1 alone" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/workspace", "/v1/workspace/check", "/v1/jobs"])
def test_request_without_the_key_is_refused_with_401(tmp_path, path) -> None:
    method = "GET" if path == "/v1/workspace" else "POST"
    answer = ask(tmp_path, method, path, headers={"Authorization": "Bearer kg_no"}, json={})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"content": b"{"}, 400),
        ({"content": b"[" * 100_000}, 400),
        ({"content": b"\xff"}, 400),
        ({"json": [1]}, 422),
        ({"json": {"source": 3}}, 422),
        ({"content": b'{"source": "' + b"x" * (1 << 20) + b'"}'}, 413),
    ],
)
def test_body_that_holds_no_kernel_is_refused(tmp_path, given, status) -> None:
    found = session(tmp_path)
    assert ask(tmp_path, "POST", "/v1/workspace/check", found, **given).status_code == status
    assert found.calls_left == 3


def test_call_is_answered_with_feedback_and_the_account(tmp_path) -> None:
    found = session(tmp_path)
    body = {"source": marked("wrong"), "problem": found.problem.id}
    answer = ask(tmp_path, "POST", "/v1/workspace/check", found, json=body).json()
    assert answer["status"] == "wrong" and answer["text"].endswith("Calls left: 2")
    (tmp_path / "keys.yaml").unlink()
    state = ask(tmp_path, "GET", "/v1/workspace", found).json()
    assert (state["budget"], state["calls_left"], state["submitted"]) == (3, 2, False)
    assert [each["status"] for each in state["calls"]] == ["wrong"]


def test_lone_surrogates_are_judged_and_the_feedback_can_be_sent(tmp_path) -> None:
    content = b'{"source": "# \\ud800\\n# verdict: wrong"}'
    answer = ask(tmp_path, "POST", "/v1/workspace/check", content=content)
    assert answer.status_code == 200 and answer.json()["status"] == "wrong"


def test_calls_at_the_same_time_are_counted_one_after_the_other(tmp_path) -> None:
    found = session(tmp_path, budget=4)

    async def many() -> list[int]:
        async with serving(found, tmp_path) as client:
            body = {"source": RIGHT}
            asked = [client.post("/v1/workspace/check", json=body) for _ in range(6)]
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert sorted(asyncio.run(many())) == [200] * 4 + [409] * 2
