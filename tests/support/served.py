"""A verdict service inside a test, on a state folder, with a scripted evaluator."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from kernelgym.serve.app import VerdictService, create_app
from kernelgym.serve.judges import MakeEvaluator
from kernelgym.serve.keys import KeyRing
from kernelgym.serve.runner import Keeping
from kernelgym.serve.store import JobStore
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Evaluator, Problem


class OneProblem:
    """Suite that holds the sample problem."""

    name, levels, splits = "Sample", (1,), ()

    def __init__(self, problem: Problem = SAMPLE_PROBLEM) -> None:
        self._problem = problem

    def problems(self, level=None, ids=None, split=None) -> tuple[Problem, ...]:
        return (self._problem,)

    def get(self, problem_id: str) -> Problem:
        from kernelgym.suites.base import find_problem

        return find_problem([self._problem], problem_id)


def job(source: str = "class ModelNew: ...", **changes: Any) -> dict[str, Any]:
    problem = {"id": SAMPLE_PROBLEM.id, "digest": SAMPLE_PROBLEM.digest}
    kernel = {"source": source, "language": "triton"}
    return {"problem": problem, "kernel": kernel} | changes


@contextlib.asynccontextmanager
async def served(
    folder: Path,
    evaluator: Evaluator | None = None,
    keys: Path | None = None,
    keeping: Keeping | None = None,
    prepare: Callable[[VerdictService], None] = lambda _: None,
    make: MakeEvaluator | None = None,
) -> AsyncIterator[tuple[httpx.AsyncClient, VerdictService]]:
    """Serve in this event loop; yields a client without a key, and the service."""
    service = VerdictService(
        JobStore(folder),
        evaluator or ScriptedEvaluator(),
        make,
        [OneProblem()],
        KeyRing(keys),
        keeping=keeping or Keeping(),
    )
    prepare(service)
    app = create_app(service)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client, service
