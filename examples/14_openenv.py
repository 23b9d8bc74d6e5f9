"""Serve episodes by OpenEnv's server, and play one with its client.

    python examples/14_openenv.py

Needs `pip install 'kernelgym[openenv]'`. The server runs in a thread; the judge compiles and runs
the kernels on the CPU. `packages/kernelgym-openenv` has a server to be started by itself.
"""

from __future__ import annotations

import asyncio
import threading
import time

import uvicorn
from openenv.core.generic_client import GenericEnvClient

from kernelgym import get_problem
from kernelgym.adapters.openenv import create_app
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEM = get_problem("Synthetic/L1/2")
ANSWERS = [broken_variants(PROBLEM, "triton")[0].kernel, solve(PROBLEM, "triton")]


async def play(url: str) -> None:
    # Judging may take minutes on a busy machine; the client gives up after one by default.
    async with GenericEnvClient(base_url=url, message_timeout_s=600) as client:
        result = await client.reset(problem_id=PROBLEM.id)
        print(f"{len(result.observation['messages'])} messages to begin with")
        for kernel in ANSWERS:
            result = await client.step({"answer": reply(kernel)})
            print(f"{result.metadata['status']}: reward {result.reward:.2f}, done {result.done}")


if __name__ == "__main__":
    app = create_app("Synthetic-L1-MultiTurn", problems="2", max_turns=3)
    server = uvicorn.Server(uvicorn.Config(app, port=8123, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.1)
    asyncio.run(play("http://127.0.0.1:8123"))
    server.should_exit = True
    thread.join()
