"""Policies and judges that eval runs are tested with: instant, counted, failing on demand."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelgym.benchmark.run.generations import AnswerKey, AnswerRequest, Generation, TokenUsage
from kernelgym.benchmark.run.policies import EvalPolicy
from kernelgym.records.jsonlines import read_lines
from kernelgym.testing import SAMPLE_KERNELS, verdict
from kernelgym.types import Kernel, Problem, Verdict


class CountedPolicy(EvalPolicy):
    """Answers with a kernel that names its request; counts what it is asked.

    Args:
        fails: Raises or returns another answer for a request; None lets it pass.
        takes_s: Seconds that an answer takes.
    """

    def __init__(
        self,
        fails: Callable[[AnswerRequest], Generation | None] = lambda asked: None,
        takes_s: float = 0.0,
    ) -> None:
        self.asked: list[AnswerKey] = []
        self.most_at_once = self._now = 0
        self.closed = False
        self._fails, self._takes_s = fails, takes_s

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"kind": "counted", "model": "counted"}

    async def check(self) -> None:
        pass

    async def answer(self, asked: AnswerRequest) -> Generation:
        self.asked.append(asked.key)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self._takes_s)
            return self._fails(asked) or Generation(
                text_of(asked), usage=TokenUsage(10, 0, 5), usd=0.25
            )
        finally:
            self._now -= 1

    async def close(self) -> None:
        self.closed = True


def text_of(asked: AnswerRequest) -> str:
    """Return an answer that depends on what was read."""
    read = "\n".join(message.content for message in asked.messages)
    mark = hashlib.sha256(read.encode()).hexdigest()[:12]
    source = SAMPLE_KERNELS["triton"].source
    return f"<KERNEL>\n```python\n{source}# {asked.sample} {asked.turn} {mark}\n```\n</KERNEL>"


def by_digest(problem: Problem, kernel: Kernel) -> Verdict:
    """Return a verdict that follows from the kernel's source alone."""
    del problem
    number = int(kernel.digest, 16) % 5
    if number == 0:
        return verdict("correct", speedup=1.0 + number, message="scripted")
    return verdict(("wrong", "compile_error", "runtime_error", "timeout")[number - 1])


def lines_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of a run's file; none if it is not there."""
    path = folder / f"{name}.jsonl"
    return [row for _, row in read_lines(path)] if path.exists() else []
