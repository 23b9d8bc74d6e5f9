"""Connections that send no request or read no answer are closed; others are kept."""

from __future__ import annotations

import asyncio

from kernelgym.serve.connections import SILENT_S, Connections, WatchedApp


class Transport:
    def __init__(self, port: int) -> None:
        self.port, self.aborted = port, False

    def get_extra_info(self, name: str):
        return ("127.0.0.1", self.port) if name == "peername" else None

    def abort(self) -> None:
        self.aborted = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_connection_that_is_silent_for_too_long_is_closed_and_one_that_is_answered_kept() -> None:
    clock = Clock()
    connections = Connections(clock=clock)
    silent, busy, gone = map(Transport, (1, 2, 3))
    for each in (silent, busy, gone):
        connections.add(each)
    connections.remove(("127.0.0.1", 3))
    with connections.answering(("127.0.0.1", 2)):
        clock.now = SILENT_S
        asyncio.run(connections.close_silent())
        assert silent.aborted and not busy.aborted and not gone.aborted
    asyncio.run(connections.close_silent())
    assert not busy.aborted, "its silence began with the end of the answer"
    clock.now = 2 * SILENT_S
    asyncio.run(connections.close_silent())
    assert busy.aborted


def test_oldest_silent_connection_is_closed_if_there_are_too_many() -> None:
    connections = Connections(most=2)
    opened = [Transport(port) for port in range(4)]
    for each in opened:
        connections.add(each)
    assert [each.aborted for each in opened] == [True, True, False, False]


def test_client_that_does_not_read_ends_its_answer() -> None:
    ended = []

    async def app(scope, receive, send) -> None:
        try:
            while True:
                await send({"type": "http.response.body", "more_body": True})
        finally:
            ended.append(scope["path"])

    async def never(message) -> None:
        await asyncio.Event().wait()

    limited = WatchedApp(app, Connections(), seconds=0.05)
    asyncio.run(limited({"type": "http", "path": "/events"}, None, never))
    assert ended == ["/events"]
