"""`KernelWriter`: asks a policy of ``kernelgym eval`` for kernels, within caps.

Contract: clients, retries, rate limits, prices and caps are those of `kernelgym.benchmark.run`.
Each request's worst case is reserved below the caps before the request is made, and one that does
not fit is not made. Answers are kept on the disk, by the policy's settings and the prompt; one that
is there already costs nothing. No key is written to any file.

Requests run in a thread with an event loop of its own, so that one writer serves searches that
follow each other, each with its own loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kernelgym import Kernel, Problem
from kernelgym.benchmark.run.generations import AnswerKey, AnswerRequest, Generation, request_seed
from kernelgym.benchmark.run.policies import EvalPolicy
from kernelgym.benchmark.run.spending import PricedPolicy
from kernelgym.types import Message
from kernelgym.whole_file import write_whole

T = TypeVar("T")
MOST_FAILED = 5
"""Number of requests in a row without an answer after which a search stops asking."""


@dataclass(frozen=True, slots=True)
class WriterRequest(AnswerRequest):
    """Request to a policy for one kernel, with the facts for a command's environment."""

    parent: Kernel = dataclasses.field(kw_only=True)
    """Kernel that the answer has to change."""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict, kw_only=True)
    """Facts by name, such as ``MOVE`` and ``RECIPE``."""


@dataclass(frozen=True, slots=True)
class WriterAnswer:
    """An answer and whether it was on the disk already."""

    generation: Generation
    cached: bool = False


class KernelWriter:
    """Asks a policy for kernels.

    Args:
        policy: Policy that answers; a `PricedPolicy` if costs are counted or capped.
        cache: Folder of answers; None to keep none.
        repairs: Number of times that one kernel is repaired.
        free_moves: Whether any change may be asked for, not only the moves that the search knows.
        retrieval: Solved problems that prompts show, as `kernelgym.retrieval.prompt_part.Retrieval`
            takes them; None for none.
        seed: Seed of the requests, for policies that can be seeded.
    """

    def __init__(
        self,
        policy: EvalPolicy,
        *,
        cache: Path | None = None,
        repairs: int = 1,
        free_moves: bool = False,
        retrieval: object = None,
        seed: int = 0,
    ) -> None:
        self.policy, self.repairs, self.free_moves = policy, repairs, free_moves
        self.retrieval = retrieval
        self._served: set[Path] = set()
        self._cache, self._seed = cache, seed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that the policy can answer.

        Raises:
            UsageError: If it cannot.
        """
        self._run(self.policy.check()).result()

    def add_spent(self, folder: Path, tokens: int, usd: float) -> None:
        """Count the tokens and dollars that the search spent before a resumption, at most once.

        Args:
            folder: Folder of the search.
            tokens: Tokens that it spent.
            usd: US dollars that it spent.
        """
        is_new = folder.resolve() not in self._served
        self._served.add(folder.resolve())
        if is_new and isinstance(self.policy, PricedPolicy):
            self.policy.token_cap.spent += tokens
            self.policy.cap.spent += usd

    def request(
        self,
        problem: Problem,
        number: int,
        messages: Sequence[Message],
        parent: Kernel,
        facts: Mapping[str, str],
    ) -> WriterRequest:
        """Return the request with a number."""
        seed = request_seed(self._seed, AnswerKey(problem.id, number, 0))
        return WriterRequest(problem, number, 0, tuple(messages), seed, parent=parent, facts=facts)

    def worst(self, request: AnswerRequest) -> tuple[int, float]:
        """Return the largest possible number of tokens and US dollars of a request.

        Both are 0 for a policy that costs nothing by the token.
        """
        if not isinstance(self.policy, PricedPolicy):
            return 0, 0.0
        return self.policy.worst_tokens(request), self.policy.worst_usd(request)

    def ask(self, request: AnswerRequest, repeat: int) -> concurrent.futures.Future[WriterAnswer]:
        """Return the future of the answer to a request.

        Args:
            request: The request.
            repeat: Number of earlier requests with the same prompt in the search. Their answers
                are not given again.

        The future raises what `kernelgym.benchmark.run.policies.EvalPolicy.answer` raises.
        """
        return self._run(self._ask(request, repeat))

    async def _ask(self, request: AnswerRequest, repeat: int) -> WriterAnswer:
        path = self._path(request, repeat)
        if path is not None and (known := _read(path)) is not None:
            return WriterAnswer(dataclasses.replace(known, usd=0.0), cached=True)
        found = await self.policy.answer(request)
        if path is not None:
            write_whole(path, json.dumps(found.to_dict()) + "\n", sync=True)
        return WriterAnswer(found)

    def _path(self, request: AnswerRequest, repeat: int) -> Path | None:
        if self._cache is None:
            return None
        read = [[message.role, message.content] for message in request.messages]
        data = [dict(self.policy.settings), read, repeat]
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        return self._cache / digest[:2] / f"{digest}.json"

    def close(self) -> None:
        """Cancel requests that are under way, and close the policy."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(Exception):
            self._run(self._end()).result(timeout=30.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.policy.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def __enter__(self) -> KernelWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prompt_digest(messages: Sequence[Message]) -> str:
    """Return sixteen hexadecimal digits, equal for equal prompts."""
    data = json.dumps([[message.role, message.content] for message in messages])
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def _read(path: Path) -> Generation | None:
    """Return the answer in a file; None if the file is missing or damaged."""
    try:
        return Generation.from_dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
