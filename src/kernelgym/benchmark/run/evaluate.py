"""`evaluate`: run a policy on problems and keep answers and verdicts in a folder.

Contract: the same call resumes the run. No answer on disk is requested again, an answer without a
verdict is judged, an `unavailable` verdict is judged again, and an episode continues at its next
turn. Wrong arguments are refused before anything is requested or judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from kernelgym.benchmark.run.driver import EvalSummary, drive
from kernelgym.benchmark.run.folder import RunFolder
from kernelgym.benchmark.run.options import EvalTask
from kernelgym.benchmark.run.plan import (
    PLAN_FILE,
    EvalPlan,
    check_continues,
    read_plan,
    write_json,
    write_plan,
)
from kernelgym.benchmark.run.plan_from_options import problems_of, resolve
from kernelgym.benchmark.run.policies import EvalPolicy, make_policy
from kernelgym.benchmark.run.spending import PricedPolicy, priced
from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.machine import machine
from kernelgym.prices import Price
from kernelgym.suites.known_memory import check_fits
from kernelgym.types import Evaluator, Problem

MACHINE_FILE = "machine.json"
EvalPart = Literal["all", "generate", "judge"]
"""Part of a run that a call does: all, only answers (generate), or only verdicts (judge)."""


def default_folder(name: str) -> Path:
    """Return the folder of a run for which only a name is given."""
    return Path("runs") / name


def evaluate(
    policy: str | EvalPolicy | None,
    *,
    out: str | Path = "",
    name: str = "",
    part: EvalPart = "all",
    evaluator: Evaluator | None = None,
    workers: int = 1,
    concurrency: int = 8,
    on_episode: Callable[[], object] = lambda: None,
    price: str | Price = "",
    max_usd: float | None = None,
    tokenizer: str = "",
    **task: Any,
) -> EvalSummary:
    """Let a policy write kernels, judge them, and keep answers and verdicts.

    Args:
        policy: A name such as ``scripted``, or a policy itself (`make_policy` makes one with
            options); None only with ``part="judge"``.
        out: Folder of the run; ``runs/NAME`` if empty.
        name: Name of the run; made of the names of model and suite if empty.
        part: ``all``, or one of ``generate`` and ``judge``, which can run on different machines.
            ``judge`` takes everything but `out` and the evaluator's options from the folder.
        evaluator: Judge of the kernels; a `kernelgym.LocalEvaluator` if None. It is not closed.
        workers: Number of kernels that an evaluator made here judges at the same time.
        concurrency: Largest number of answers that are requested at the same time.
        on_episode: Function that is called for each episode that ended, was cut, or waits.
        price: Price of the model: ``IN,OUT`` or ``IN,OUT,CACHED`` in USD per million tokens, the
            path of a YAML file of prices, or a `kernelgym.prices.Price`; costs are not counted if
            empty.
        max_usd: US dollars that the run must not exceed; needs `price`.
        tokenizer: Name of the tokenizer that counts prompts for `max_usd`; each UTF-8 byte counts
            for one token if empty.
        **task: Fields of `kernelgym.benchmark.run.options.EvalTask`, such as suite and level.

    Returns:
        Counts of what was done.

    Raises:
        UsageError: If an argument makes no sense, or the folder holds another plan.

    Examples:
        >>> from kernelgym.testing import ScriptedEvaluator
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = evaluate("scripted", suite="Synthetic", level=1, limit=2, out=folder,
        ...                     evaluator=ScriptedEvaluator())
        >>> done.ended, done.answers
        (2, 2)
    """
    if part not in ("all", "generate", "judge"):
        raise UnknownName("part of a run", part, ("all", "generate", "judge"))
    made = None
    if part == "judge":
        if policy is not None or task or price or max_usd or tokenizer:
            raise UsageError(
                "part='judge' requests no answers and takes the plan from the folder; leave out "
                "policy, price, max_usd, tokenizer and the options of the task"
            )
        folder = Path(out)
        plan = read_plan(folder)
        problems = problems_of(plan)
    else:
        known = [each.name for each in dataclasses.fields(EvalTask)]
        for option in task:
            if option not in known:
                raise UnknownName("option", option, known)
        if policy is None:
            raise UsageError("a run needs a policy; only part='judge' does without one")
        made = priced(
            make_policy(policy) if isinstance(policy, str) else policy,
            price,
            max_usd,
            tokenizer,
        )
        plan, problems = resolve(EvalTask(**task), made.settings, name)
        folder = Path(out) if out else default_folder(plan.name)
    with contextlib.ExitStack() as stack:
        if evaluator is None and part != "generate":
            from kernelgym.judge import LocalEvaluator

            evaluator = LocalEvaluator(plan.device, plan.rules, workers, plan.timing)
            stack.callback(evaluator.close)
        return run_plan(
            plan,
            problems,
            folder,
            made,
            None if part == "generate" else evaluator,
            concurrency=concurrency,
            on_episode=on_episode,
        )


def run_plan(
    plan: EvalPlan,
    problems: Sequence[Problem],
    folder: Path,
    policy: EvalPolicy | None,
    evaluator: Evaluator | None,
    *,
    concurrency: int = 8,
    on_episode: Callable[[], object] = lambda: None,
) -> EvalSummary:
    """Play a resolved plan in a folder, as far as policy and evaluator allow.

    Args:
        plan: The plan.
        problems: The plan's problems.
        folder: Folder of the run.
        policy: Source of the answers that are not on disk; None to judge those that are there.
        evaluator: Judge of the kernels that have no verdict; None to judge nothing.
        concurrency: Largest number of answers that are requested at the same time.
        on_episode: Function that is called for each episode that ended, was cut, or waits.

    Raises:
        UsageError: If the folder holds another plan, or evaluator and plan do not agree.
    """
    if concurrency < 1:
        raise UsageError(f"concurrency (--concurrency) must be at least 1, got {concurrency}")
    if evaluator is not None:
        _agree(plan, evaluator)

    async def play() -> EvalSummary:
        async with contextlib.AsyncExitStack() as stack:
            if policy is not None:
                stack.push_async_callback(policy.close)
            if (folder / PLAN_FILE).exists():
                check_continues(read_plan(folder), plan, folder)
            if evaluator is not None:
                budget = evaluator.capabilities.memory_bytes
                for problem in problems:
                    check_fits(problem, budget, plan.device)
            if policy is not None:
                await policy.check()
            held = await stack.enter_async_context(RunFolder(folder))
            _begin(folder, plan, judges=evaluator is not None)
            if isinstance(policy, PricedPolicy):
                policy.cap.spent = held.spent_usd()
            judge, ahead = None, 64
            if evaluator is not None:
                ahead = max(ahead, 4 * evaluator.capabilities.workers)
                judge = await stack.enter_async_context(AwaitedEvaluator(evaluator))
            return await drive(
                plan,
                problems,
                held,
                plan.observer(),
                policy,
                judge,
                concurrency=concurrency,
                ahead=ahead,
                on_episode=on_episode,
            )

    return asyncio.run(play())


def _begin(folder: Path, plan: EvalPlan, *, judges: bool) -> None:
    """Write the plan, or its larger number of samples, and the facts of the machine.

    If answers and verdicts come from two machines, the machine that judges is recorded.
    """
    recorded = folder / MACHINE_FILE
    if not _is_recorded(recorded, judges):
        write_json(recorded, machine(plan.device, "torch", "triton") | {"judges": judges})
    if not (folder / PLAN_FILE).exists():
        write_plan(folder, plan)
        return
    there = read_plan(folder)
    check_continues(there, plan, folder)
    if plan.samples > there.samples:
        write_plan(folder, dataclasses.replace(there, samples=plan.samples))


def _is_recorded(path: Path, judges: bool) -> bool:
    """Return True if a readable file of an eval run records the machine."""
    try:
        there = json.loads(path.read_text("utf-8"))
        return bool(there["judges"]) or not judges
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return False


def _agree(plan: EvalPlan, evaluator: Evaluator) -> None:
    """Refuse an evaluator whose ruleset or device is not that of the eval run's plan."""
    can = evaluator.capabilities
    if can.ruleset.label != plan.ruleset or can.device != plan.device:
        raise UsageError(
            f"the evaluator judges by {can.ruleset.label!r} on {can.device!r}, and the "
            f"run by {plan.ruleset!r} on {plan.device!r}; give the evaluator of the run"
        )
