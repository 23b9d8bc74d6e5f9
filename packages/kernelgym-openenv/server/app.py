"""Serve an environment of kernelgym to OpenEnv's clients: ``server --help``."""

from __future__ import annotations

from pathlib import Path

import tyro
import uvicorn

from kernelgym.adapters.openenv import create_app
from kernelgym.errors import UsageError
from kernelgym.serve.key_gate import AsgiApp, KeyGate
from kernelgym.serve.keys import KeyRing


def serve(
    env_id: str = "Synthetic-L1-MultiTurn",
    language: str = "triton",
    evaluator: str = "",
    device: str = "cpu",
    max_turns: int = 4,
    sessions: int = 16,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: str = "",
) -> None:
    """Serve an environment until the process is interrupted.

    Args:
        env_id: Id of the environment.
        language: Language of the kernels.
        evaluator: Address of a verdict service; empty for a judge in this process.
        device: Device of the judge in this process.
        max_turns: Largest number of answers of an episode.
        sessions: Largest number of sessions at the same time.
        host: Address to listen on; any but loopback needs keys.
        port: Port to listen on.
        keys: File of keys, as `kernelgym serve keys add` writes it.
    """
    if host not in ("127.0.0.1", "localhost", "::1") and not keys:
        raise SystemExit(f"--host {host} is reached from elsewhere: give --keys FILE")
    where = {"evaluator": evaluator} if evaluator else {"device": device}
    try:
        app: AsgiApp = create_app(
            env_id, sessions=sessions, language=language, max_turns=max_turns, **where
        )
        if keys:
            app = KeyGate(app, KeyRing(Path(keys)))
    except UsageError as error:
        raise SystemExit(str(error)) from None
    uvicorn.run(app, host=host, port=port)


def main() -> None:
    """Read the options and serve."""
    tyro.cli(serve)


if __name__ == "__main__":
    main()
