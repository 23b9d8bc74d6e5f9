"""Writers of kernels for tests: a search of the matmul example that asks a local server."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.openai_policy import EndpointSampling, OpenAIPolicy
from kernelgym.benchmark.run.policies import AnswerMissing, EvalPolicy
from kernelgym.benchmark.run.replay_policies import answer_of
from kernelgym.benchmark.run.spending import PricedPolicy, SpendingCap
from kernelgym.prices import Price
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.writing.writer import KernelWriter
from support import searches
from support.chat_server import ChatServer

FOLDER = Path("kernels") / "matmul"
MAX_TOKENS = 64
DULL = ("unroll", "change_block_sizes", "loop_order", "cache_policy_cg")
"""Moves that gain next to nothing by the table, so that a writer is asked as often as rules."""
PRICE = Price(1.0, 10.0)


def replace(old: str, new: str, *, gain: str = "0.5", summary: str = "other flags") -> str:
    """Return an answer that replaces one line's text."""
    return (
        f"<think>\nIt is slow.\n</think>\nGAIN: {gain}\nSUMMARY: {summary}\n\n"
        f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"
    )


def flag_line(source: str) -> str:
    """Return the line of a module that has its compiler flags."""
    return next(line for line in source.splitlines() if "extra_cflags" in line)


def shown(body: Mapping[str, Any]) -> str:
    """Return the kernel that a prompt shows."""
    text = prompt(body)
    found = re.search(r"its file `kernel_module\.py`:\n\n```python\n(.*?)\n```", text, re.DOTALL)
    assert found is not None
    return found[1]


def prompt(body: Mapping[str, Any]) -> str:
    """Return the last message of a request's body."""
    return str((body.get("messages") or body["input"])[-1]["content"])


def priced(policy: EvalPolicy, usd: float | None = None, tokens: int | None = None) -> PricedPolicy:
    """Return a policy with a price and caps."""
    return PricedPolicy(
        policy,
        PRICE,
        SpendingCap(usd),
        max_tokens=MAX_TOKENS,
        token_cap=SpendingCap(tokens, unit="tokens", option="llm_tokens"),
    )


def client(server: ChatServer, **given: Any) -> OpenAIPolicy:
    """Return a policy that asks a local server."""
    sampling = EndpointSampling(max_tokens=MAX_TOKENS)
    usual: dict[str, Any] = {"retries": 2, "timeout_s": 5.0, "sampling": sampling}
    return OpenAIPolicy("kernel-writer", server.url, **{**usual, **given})


def run(
    outdir: Path,
    policy: EvalPolicy,
    judge: ScriptedEvaluator | None = None,
    *,
    builds: int = 6,
    writer: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Search the matmul example by a writer and dull rules, one kernel after the other."""
    usual = {"workers": 1, "moves": DULL, "budget": Budget(builds, min_pred_gain=0.0)}
    given = {**usual, **given}
    with KernelWriter(policy, **(writer or {})) as made:
        return searches.run(outdir, judge or evaluator(), builds, writer=made, **given)


class WholePolicy(EvalPolicy):
    """Answers with kernels in their order, each as a whole module."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self._left = list(kernels)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"kind": "whole", "model": "whole"}

    async def answer(self, asked: AnswerRequest) -> Generation:
        if not self._left:
            raise AnswerMissing("there are no more kernels")
        return Generation(f"GAIN: 2\n\n{answer_of(self._left.pop(0).source)}")


def evaluator(
    script: Callable[[Problem, Kernel], Verdict] = searches.judged,
) -> ScriptedEvaluator:
    """Return an evaluator by the table whose verdicts say that they took half a minute.

    Otherwise rules would cost nothing, and a writer would hardly be asked.
    """
    return searches.evaluator(
        lambda problem, kernel: dataclasses.replace(script(problem, kernel), wall_s=30.0)
    )


def answers(outdir: Path) -> list[dict[str, Any]]:
    """Return the field ``answer`` of a search's events, with the event's name as outcome."""
    found = [row for row in searches.rows(outdir) if "answer" in row]
    return [{"outcome": row["event"], **row["answer"]} for row in found]


def requests(outdir: Path) -> list[dict[str, Any]]:
    """Return the files of a search's requests and answers."""
    paths = sorted((outdir / FOLDER / "answers").glob("*.json"))
    return [json.loads(path.read_text()) for path in paths]


class Script:
    """Replies of a server: one text a request, the last one again and again."""

    def __init__(self, *texts: Any) -> None:
        self._left = list(texts)

    def __call__(self, body: Mapping[str, Any]) -> Any:
        text = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return text(body) if callable(text) else text


def new_flags() -> Any:
    """Return a reply that adds another macro to the flags each time."""
    numbers = itertools.count()

    def reply(body: Mapping[str, Any]) -> str:
        line = flag_line(shown(body))
        return replace(line, line.replace('"-O2"', f'"-O2", "-DN={next(numbers)}"'))

    return reply


def o3(body: Mapping[str, Any]) -> str:
    line = flag_line(shown(body))
    return replace(line, line.replace('"-O2"', '"-O3"'), summary="a higher level")
