"""`KeyGate`: an ASGI app behind the keys of ``kernelgym serve``.

For servers of other projects that ask for no key of their own, such as OpenEnv's. Each request, and
each WebSocket when it is opened, carries ``Authorization: Bearer KEY``; it counts against the key's
limit. What follows on an open WebSocket is not counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from kernelgym.serve.gate import refused
from kernelgym.serve.keys import KeyRing
from kernelgym.serve.refusal import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class KeyGate:
    """ASGI app that passes requests with a key of the role ``judge`` on, and refuses others.

    Args:
        app: The app behind it.
        keys: The keys.
    """

    def __init__(self, app: AsgiApp, keys: KeyRing) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or open a WebSocket: 401, 403 and 429 as ``kernelgym serve`` does."""
        try:
            if scope["type"] != "lifespan":
                key = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
                self._keys.holder(key, "judge")
        except Refusal as refusal:
            if scope["type"] == "http":
                answer = await refused(None, refusal)
                await answer(scope, receive, send)
            else:  # closed before it is accepted: the server answers 403
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": refusal.message})
        else:
            await self._app(scope, receive, send)
