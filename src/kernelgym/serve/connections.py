"""Connections of the service; those whose client sends no request or reads no answer are closed.

uvicorn closes a connection that is quiet after an answer. It waits without limit for a first
request, for the rest of a request's head, and for a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT_S = 10.0
"""Seconds after which a connection on which no request is answered is closed."""
_MOST_SILENT = 1000

Address = tuple[str, int]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Connections:
    """The open connections of a server that wait for a request; used in its event loop only.

    Args:
        most: Number of them above which the oldest is closed at once.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, most: int = _MOST_SILENT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._clock = most, clock
        self._open: dict[Address, asyncio.Transport] = {}
        self._silent: dict[Address, float] = {}

    def protocol(self) -> type[H11Protocol]:
        """Return uvicorn's protocol for HTTP/1.1, which tells this object of every connection."""
        connections = self

        class Watched(H11Protocol):  # type: ignore[misc]
            _address: Address | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                self._address = connections.add(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                connections.remove(self._address)
                super().connection_lost(exc)

        return Watched

    def add(self, transport: asyncio.Transport) -> Address | None:
        """Watch a new connection and return its client's address; None if the client has left.

        The oldest silent connection is closed if there are too many.
        """
        peer = transport.get_extra_info("peername")
        if not isinstance(peer, tuple):
            return None
        address = str(peer[0]), int(peer[1])  # as the scope of a request names its client
        self._open[address], self._silent[address] = transport, self._clock()
        if len(self._silent) > self._most:
            self._close(next(iter(self._silent)))
        return address

    def remove(self, address: Address | None) -> None:
        """Forget a connection that has ended."""
        if address is not None:
            self._open.pop(address, None)
            self._silent.pop(address, None)

    @contextlib.contextmanager
    def answering(self, address: Address | None) -> Iterator[None]:
        """Mark the connection from an address as busy while its request is answered."""
        if address is None:
            yield
            return
        self._silent.pop(address, None)
        try:
            yield
        finally:
            if address in self._open:
                self._silent[address] = self._clock()

    async def close_silent(self) -> None:
        """Close the connections that have been silent for too long."""
        now = self._clock()
        for address, since in list(self._silent.items()):
            if now - since < SILENT_S:
                break
            self._close(address)

    def _close(self, address: Address) -> None:
        self._silent.pop(address)
        self._open.pop(address).abort()  # closing would wait for the end of TLS


class WatchedApp:
    """ASGI application around another one that counts connections as busy while it answers.

    Clients that do not read what they asked for are given up.

    Args:
        app: The application.
        connections: Connections of its server.
        seconds: Longest time that one part of an answer may take to be sent.
    """

    def __init__(self, app: Any, connections: Connections, seconds: float = 60.0) -> None:
        self._app, self._connections, self._seconds = app, connections, seconds

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request, and close the connection of a client that does not read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        gave_up = False

        async def limited(message: dict[str, Any]) -> None:
            nonlocal gave_up
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                gave_up = True
                raise OSError("the client does not read the answer it asked for") from None

        with self._connections.answering(scope.get("client")):
            try:
                await self._app(scope, receive, limited)
            except Exception:
                if not gave_up:
                    raise
