"""`evaluate`: from a policy to a folder of answers and verdicts.

Contract: the same call again goes on with the run. No answer on disk is asked for again, an answer
without a verdict is judged, an `unavailable` verdict is judged anew, and an episode goes on at its
next turn. Whatever is wrong with the arguments is said before anything is asked or judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from kernelgym.benchmark.run.driver import Done, drive, nothing_said
from kernelgym.benchmark.run.folder import RunFolder
from kernelgym.benchmark.run.plan import (
    PLAN_FILE,
    Plan,
    check_continues,
    read_plan,
    write_json,
    write_plan,
)
from kernelgym.benchmark.run.policies import EvalPolicy, make_policy
from kernelgym.benchmark.run.spending import PricedPolicy, priced
from kernelgym.benchmark.run.task import Task, problems_of, resolve
from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.machine import machine
from kernelgym.prices import Price
from kernelgym.suites.known_memory import check_fits
from kernelgym.types import Evaluator, Problem

__all__ = ["MACHINE_FILE", "Part", "default_folder", "evaluate", "run_plan"]

MACHINE_FILE = "machine.json"
Part = Literal["all", "generate", "judge"]
"""What a command does of a run: both sides, only answers, or only verdicts."""


def default_folder(name: str) -> Path:
    """Return the folder of a run that only has a name."""
    return Path("runs") / name


def evaluate(
    policy: str | EvalPolicy | None,
    *,
    out: str | Path = "",
    name: str = "",
    part: Part = "all",
    evaluator: Evaluator | None = None,
    workers: int = 1,
    concurrency: int = 8,
    on_episode: Callable[[], object] = lambda: None,
    price: str | Price = "",
    max_usd: float | None = None,
    tokenizer: str = "",
    **task: Any,
) -> Done:
    """Have a policy write kernels, judge them, and keep all of it.

    Args:
        policy: A name such as ``scripted``, or a policy itself (`make_policy` makes one with
            options); None only with ``part="judge"``.
        out: The run's folder; ``runs/NAME`` if empty.
        name: The run's name; made of the model's and the suite's if empty.
        part: ``all``, or one of ``generate`` and ``judge``, which need not run on one machine.
            ``judge`` takes everything but `out` and the judge's own options from the folder.
        evaluator: The judge; a `kernelgym.LocalEvaluator` if None. It is not closed.
        workers: Kernels that it judges at the same time, if it is made here.
        concurrency: Most answers that are asked for at the same time.
        on_episode: Called for each episode that ended, was cut, or waits.
        price: What the model costs: ``IN,OUT`` or ``IN,OUT,CACHED`` in USD per million tokens, the
            path of a YAML file of prices, or a `kernelgym.prices.Price`; nothing is counted if
            empty.
        max_usd: US dollars that the run must not exceed; needs `price`.
        tokenizer: Name of the tokenizer that counts prompts for `max_usd`; each UTF-8 byte counts
            for one token if empty.
        **task: The fields of `kernelgym.benchmark.run.task.Task`: suite, level, samples, turns ...

    Returns:
        What became of the run.

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
    if concurrency < 1 or workers < 1:
        raise UsageError(
            f"concurrency and workers must be at least 1, got {concurrency} and {workers}"
        )
    if part == "judge":
        if price or max_usd or tokenizer:
            raise UsageError("part='judge' asks for no answer; leave price, max_usd, tokenizer out")
        return _judge_only(policy, out, evaluator, workers, on_episode, task)
    for option in task:
        known = [field.name for field in dataclasses.fields(Task)]
        if option not in known:
            raise UnknownName("option", option, known)
    if policy is None:
        raise UsageError("a run needs a policy; only part='judge' does without one")
    made = make_policy(policy) if isinstance(policy, str) else policy
    made = priced(made, price, max_usd=max_usd, tokenizer=tokenizer)
    plan, problems = resolve(Task(**task), made.settings, name)
    folder = Path(out) if out else default_folder(plan.name)
    return run_plan(
        plan,
        problems,
        folder,
        made,
        evaluator if part == "all" else None,
        judges=part == "all",
        workers=workers,
        concurrency=concurrency,
        on_episode=on_episode,
    )


def _judge_only(
    policy: object,
    out: str | Path,
    evaluator: Evaluator | None,
    workers: int,
    on_episode: Callable[[], object],
    task: dict[str, Any],
) -> Done:
    if policy is not None or task:
        raise UsageError(
            "part='judge' takes the plan from the folder; leave the policy and the options of the "
            f"task out (got {', '.join(filter(None, ('policy' if policy else '', *task)))})"
        )
    if not out:
        raise UsageError("part='judge' needs the run's folder: out='runs/NAME'")
    plan = read_plan(Path(out))
    return run_plan(
        plan,
        problems_of(plan),
        Path(out),
        None,
        evaluator,
        judges=True,
        workers=workers,
        on_episode=on_episode,
    )


def run_plan(
    plan: Plan,
    problems: Sequence[Problem],
    folder: Path,
    policy: EvalPolicy | None,
    evaluator: Evaluator | None = None,
    *,
    judges: bool = True,
    workers: int = 1,
    concurrency: int = 8,
    on_episode: Callable[[], object] = lambda: None,
) -> Done:
    """Play a resolved plan in a folder; see `evaluate`.

    Args:
        plan: The plan.
        problems: Its problems.
        folder: The run's folder.
        policy: Gives answers; None to judge those that are there.
        evaluator: The judge; made here if None and `judges`.
        judges: Whether kernels are judged.
        workers: Of a judge that is made here.
        concurrency: Most answers that are asked for at the same time.
        on_episode: Called for each episode that ended, was cut, or waits.

    Returns:
        What became of the run.

    Raises:
        UsageError: If the folder holds another plan, or judge and plan do not agree.
    """
    if evaluator is not None:
        _agree(plan, evaluator)
    return asyncio.run(
        _run(plan, problems, folder, policy, evaluator, judges, workers, concurrency, on_episode)
    )


async def _run(
    plan: Plan,
    problems: Sequence[Problem],
    folder: Path,
    policy: EvalPolicy | None,
    evaluator: Evaluator | None,
    judges: bool,
    workers: int,
    concurrency: int,
    on_episode: Callable[[], object],
) -> Done:
    async with contextlib.AsyncExitStack() as stack:
        if policy is not None:
            stack.push_async_callback(policy.close)
        if (folder / PLAN_FILE).exists():
            check_continues(read_plan(folder), plan, folder)
        if judges and evaluator is None:
            from kernelgym.judge import LocalEvaluator

            made = LocalEvaluator(plan.device, plan.rules, workers, plan.timing)
            stack.callback(made.close)
            evaluator = made
        if evaluator is not None:
            budget = getattr(evaluator, "memory_bytes", None)
            for problem in problems:
                check_fits(problem, budget, plan.device)
        if policy is not None:
            await policy.check()
        held = await stack.enter_async_context(RunFolder(folder))
        _begin(folder, plan, judges)
        if isinstance(policy, PricedPolicy):
            policy.cap.spent_usd = held.spent_usd()
        judge = None
        if evaluator is not None:
            judge = await stack.enter_async_context(AwaitedEvaluator(evaluator))
        done = await drive(
            plan,
            problems,
            held,
            plan.observer(),
            policy,
            judge,
            concurrency=concurrency,
            ahead=max(64, 4 * workers),
            on_episode=on_episode,
        )
    if not done.stopped and done.answers and done.empty == done.answers:
        done.stopped = nothing_said(done.answers)
    return done


def _begin(folder: Path, plan: Plan, judges: bool) -> None:
    """Write the plan or its larger number of samples, and the machine.

    Of two machines, the one that judges is recorded.
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
    """Return True if a whole file records the machine."""
    try:
        there = json.loads(path.read_text("utf-8"))
        return bool(there["judges"]) or not judges
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return False


def _agree(plan: Plan, evaluator: Evaluator) -> None:
    """Refuse a judge of other rules or another device than the plan's."""
    if evaluator.ruleset.label != plan.ruleset or evaluator.device != plan.device:
        raise UsageError(
            f"the evaluator judges by {evaluator.ruleset.label!r} on {evaluator.device!r}, and the "
            f"run by {plan.ruleset!r} on {plan.device!r}; give the evaluator of the run"
        )
