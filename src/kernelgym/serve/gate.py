"""Checks that every HTTP application of the room makes: the key, the host, the size of a body.

An answer that refuses a request is ``{"error": {"code", "message"}}`` with a sentence for the
caller.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kernelgym.evaluators.wire import MOST_BODY_BYTES
from kernelgym.serve.keys import KeyRing, Tenant
from kernelgym.serve.refusal import Refusal
from kernelgym.serve.requests import too_large

_BODY_S = 30.0


def add_refusals(app: FastAPI) -> None:
    """Make an application answer refusals, unknown paths and clients that leave."""
    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(HTTPException, _not_offered)
    app.add_exception_handler(ClientDisconnect, _left)


def tenant_of(request: Request, keys: KeyRing, role: str, *, any_host: bool = False) -> Tenant:
    """Return the tenant of a request, and count the request.

    Args:
        request: The request.
        keys: Keys of the server.
        role: Role that the request needs.
        any_host: Whether a server without keys answers to any host's name.

    Raises:
        Refusal: As `KeyRing.holder`, or if a server without keys is asked by the name of a host.
    """
    if keys.path is None and not any_host:
        _check_host(request)
    return keys.holder(request.headers.get("authorization", ""), role)


def _check_host(request: Request) -> None:
    """Refuse requests that name a host of the network, for servers without keys.

    A web page can have its own name resolve to a loopback address, and would else reach a server
    there through the visitor's browser. Numbers cannot be made to resolve to anything.
    """
    host = request.url.hostname or ""
    if host == "localhost":
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise Refusal(
            403,
            "host",
            f"this server has no keys and answers to numeric addresses and localhost, not {host!r}",
        ) from None


async def body_of(request: Request) -> bytes:
    """Return a request's body, of which no more than the limit is read."""
    if (said := request.headers.get("content-length", "")).isdecimal():
        if int(said) > MOST_BODY_BYTES:
            raise too_large()
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY_BYTES:
                    raise too_large()
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, "slow", f"the body did not come within {_BODY_S:g} s") from None
    return b"".join(parts)


async def refused(_: Request | None, refusal: Any) -> Response:
    """Return the answer that tells a caller of a refusal."""
    headers = {} if refusal.retry_s is None else {"Retry-After": f"{max(1.0, refusal.retry_s):.0f}"}
    error = {"error": {"code": refusal.code, "message": refusal.message}}
    return JSONResponse(error, refusal.status, headers=headers)


async def _not_offered(request: Request, error: Any) -> Response:
    message = f"{request.method} {request.url.path} is not a request of this service; see /docs"
    return await refused(request, Refusal(error.status_code, "not_offered", message))


async def _left(_: Request, __: Any) -> Response:
    return Response(status_code=400)  # the client left while it sent its request
