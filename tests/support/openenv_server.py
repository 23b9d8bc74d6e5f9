"""OpenEnv's server of scripted episodes, in a thread or as a program that prints its address."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def running(app: Any) -> Iterator[str]:
    """Serve an app on loopback, in a thread; yields its address."""
    import uvicorn

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20.0)


def main() -> None:
    """Serve until standard input ends."""
    import sys

    from kernelgym.adapters.openenv import create_app
    from kernelgym.testing import ScriptedEvaluator
    from support.scripted_answers import ENV, OPTIONS

    with running(create_app(ENV, **OPTIONS, evaluator=ScriptedEvaluator())) as url:
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
