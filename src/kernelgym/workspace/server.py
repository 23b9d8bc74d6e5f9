"""The HTTP server of a workspace: its tools, for the one key that lies in the agent's folder.

Contract: the key has the role ``judge`` and is good for the tools of this workspace alone. Any
other request that it makes below ``/v1``, and a call that names another problem, is refused
with 403. The problem, the budget and the trajectory are the session's, in this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from kernelgym.machine import installed_version
from kernelgym.serve.gate import add_refusals, body_of, tenant_of
from kernelgym.serve.keys import KeyRing
from kernelgym.serve.refusal import Refusal
from kernelgym.serve.server import Listening, run_app
from kernelgym.workspace.session import ToolSession


def create_tools_app(session: ToolSession, keys: KeyRing) -> FastAPI:
    """Return the application that answers a workspace's tools.

    Args:
        session: The session.
        keys: Keys that may call the tools.
    """
    app = FastAPI(title="kernelgym workspace", version=installed_version("kernelgym"))

    async def state(request: Request) -> Response:
        """Return the budget, and the tools called so far."""
        tenant_of(request, keys, "judge")
        return JSONResponse({**session.state(), "calls": session.calls()})

    async def call(request: Request, tool: str) -> Response:
        """Judge a kernel by one of the workspace's tools."""
        tenant_of(request, keys, "judge")
        source = _source_of(await body_of(request), session)
        answer = await session.call(tool, source)
        return JSONResponse({**answer.to_dict(), "text": str(answer)})

    async def other(request: Request) -> Response:
        """Refuse requests that only a verdict service answers."""
        tenant_of(request, keys, "judge")
        raise _not_this_problem(session)

    shared: dict[str, Any] = {"response_model": None}
    app.add_api_route("/v1/workspace", state, methods=["GET"], **shared)
    app.add_api_route("/v1/workspace/{tool}", call, methods=["POST"], **shared)
    every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app.add_api_route("/v1/{path:path}", other, methods=every, include_in_schema=False, **shared)
    add_refusals(app)
    return app


def serve_tools(session: ToolSession, keys: KeyRing, started: Callable[[str], None]) -> None:
    """Answer a workspace's tools on loopback until a kernel is submitted, or a signal comes.

    Args:
        session: The session.
        keys: Keys that may call the tools.
        started: Function that is called with the server's address.

    Raises:
        KeyboardInterrupt: After a signal.
    """
    run_app(
        create_tools_app(session, keys),
        Listening(port=0),
        lambda url, _: started(url),
        lambda: session.submission is not None,
    )


def _source_of(body: bytes, session: ToolSession) -> str:
    """Return the kernel's source in the body of a request to the workspace's server.

    Raises:
        Refusal: If the body holds none, or names another problem.
    """
    try:
        data = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "no_json", f"the request's body is not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("source"), str):
        raise Refusal(422, "invalid", 'send {"source": the kernel\'s text}')
    if data.get("problem", session.problem.id) != session.problem.id:
        raise _not_this_problem(session)
    source: str = data["source"]
    return source


def _not_this_problem(session: ToolSession) -> Refusal:
    return Refusal(
        403,
        "workspace",
        f"this key is for the tools of a workspace on {session.problem.id} alone: POST "
        f"/v1/workspace/TOOL with one of {', '.join(session.tools)}",
    )
