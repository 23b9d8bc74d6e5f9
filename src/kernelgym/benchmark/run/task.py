"""The options of an eval run, and the plan they resolve to.

Contract: `resolve` runs nothing and opens no connection beyond what a suite needs to list its
problems. The plan holds the digest of every problem and of all first prompts, so a run that is gone
on with reads what it read before.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from kernelgym.benchmark.run.plan import Plan
from kernelgym.devices import check_device
from kernelgym.episodes.stopping import check_stop_rule
from kernelgym.errors import ProblemError, UsageError
from kernelgym.languages import check_language
from kernelgym.machine import installed_version
from kernelgym.prompts.context import Context
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import render
from kernelgym.retrieval.part import ready_retrieval
from kernelgym.rewards import check_speed, check_trials
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.suites import Ids, suite
from kernelgym.suites.known_hygiene import passing
from kernelgym.suites.spec_suite import rules_for
from kernelgym.types import Problem, text_digest

__all__ = ["Task", "problems_of", "resolve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a run plays, how, and how it is judged."""

    suite: str = "KernelBench"
    """A suite's name, or the path of a folder of problems."""
    level: int | None = None
    problems: Ids | Sequence[Problem] | None = None
    """Ids, numbers or ranges, or problems themselves; None for all of the level."""
    split: str | None = None
    limit: int | None = None
    """Most problems, the first of the choice; None for all."""
    exclude_degenerate: bool = False
    """Whether problems that a worthless kernel passes are left out."""
    sizes: str = "full"
    samples: int = 1
    """Episodes of each problem."""
    turns: int = 1
    """Most turns of an episode."""
    seed: int = 0
    language: str = "triton"
    ruleset: str = "strict"
    precision: str = ""
    baseline: str = ""
    """What kernels are timed against: eager, compile or best; the ruleset's own if empty."""
    device: str = "cpu"
    timing: bool = True
    prompt: str = "full"
    examples: int | str = "one_shot"
    hardware: Hardware | Mapping[str, Any] | None = None
    retrieval: Any = None
    """An index's name, or the fields of a `kernelgym.Retrieval`."""
    prompt_tokens: int | None = None
    context: str | Context | Mapping[str, Any] = "recent"
    context_tokens: int | None = None
    reward: str = "stage2"
    stop_when: str = "correct"
    feedback_level: str = "standard"
    feedback_tokens: int | None = None


def resolve(
    task: Task, policy: Mapping[str, Any], name: str = ""
) -> tuple[Plan, tuple[Problem, ...]]:
    """Return the plan of a task, and its problems.

    Args:
        task: What is asked for.
        policy: The policy's settings.
        name: The run's; made of policy and suite if empty.

    Raises:
        UsageError: If an option makes no sense, or chooses no problem.
    """
    for option in ("samples", "turns", "limit"):
        value = getattr(task, option)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{option} is a whole number, got {value!r}")
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1, got {value}")
    device = check_device(task.device)
    rules = _rules(task)
    check_language(task.language, device, rules.precision)
    problems = _chosen(task, device)
    plan = Plan(
        name=name or default_name(policy, task),
        policy=dict(policy),
        suite=_suite_name(task, problems),
        problems=tuple((problem.id, problem.digest) for problem in problems),
        samples=task.samples,
        turns=task.turns,
        language=task.language,
        ruleset=rules.label,
        precision=task.precision,
        baseline=task.baseline,
        device=device,
        timing=task.timing,
        prompt={
            "kind": task.prompt,
            "examples": task.examples,
            "hardware": _plain(task.hardware),
            "retrieval": None
            if task.retrieval is None
            else _plain(ready_retrieval(task.retrieval, task.language, device)),
            "tokens": task.prompt_tokens,
        },
        context={
            "policy": _plain(task.context),
            **({} if task.context_tokens is None else {"tokens": task.context_tokens}),
        },
        reward={"preset": task.reward, "stop_when": task.stop_when},
        feedback={"level": task.feedback_level, "tokens": task.feedback_tokens},
        sizes=task.sizes,
        seed=task.seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kernelgym=installed_version("kernelgym"),
    )
    trial = plan.episode(problems[0])
    check_stop_rule(trial.stop_when, task.language, device)
    check_speed(trial.reward, task.language, device, timing=task.timing)
    check_trials(trial.reward, rules)
    observer = plan.observer()
    prompts = (text_digest(render(observer.observe(problem))) for problem in problems)
    digests = {
        "problems": _digest(digest for _, digest in plan.problems),
        "prompts": _digest(prompts),
    }
    return dataclasses.replace(plan, digests=digests), problems


def problems_of(plan: Plan) -> tuple[Problem, ...]:
    """Return a plan's problems, found by their ids.

    Raises:
        UsageError: If one is not there, or its source has changed.
    """
    found = suite(plan.suite, sizes=plan.sizes)
    problems = tuple(found.get(name) for name, _ in plan.problems)
    for problem, (_, digest) in zip(problems, plan.problems, strict=True):
        if problem.digest != digest:
            raise UsageError(
                f"problem {problem.id} has source {problem.digest} here, and the run was planned "
                f"with {digest}; use the version of the suite that it was planned with"
            )
    return problems


def default_name(policy: Mapping[str, Any], task: Task) -> str:
    """Return a run's name: the model's, the suite's and the level."""
    model = str(policy.get("model") or policy.get("kind", "policy")).rstrip("/")
    level = "" if task.level is None else f"-L{task.level}"
    given = f"{model.rpartition('/')[2]}-{Path(task.suite).name}{level}"
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in given).lstrip(".-") or "run"


def _chosen(task: Task, device: str) -> tuple[Problem, ...]:
    if _are_problems(task.problems):
        problems = tuple(task.problems)
        if task.sizes != "full" or task.level is not None or task.split is not None:
            raise UsageError(
                "level, split and sizes choose among a suite's problems, and `problems` holds "
                "problems already; leave them out, or give ids"
            )
    else:
        # Problems big enough to be timed where they can be; the interpreter needs small ones.
        sized: dict[str, object] = {}
        if task.suite == "Synthetic" and device != "cpu":
            sized["size"] = "gpu"
        if task.sizes != "full":
            sized["sizes"] = task.sizes
        ids: Any = task.problems
        problems = suite(task.suite, **sized).problems(task.level, ids, task.split)
    if task.exclude_degenerate:
        problems = passing(problems, _rules(dataclasses.replace(task, baseline="")), device)
        if not problems:
            raise ProblemError("every problem of the choice is degenerate; choose others")
    twice = len(problems) - len({problem.id for problem in problems})
    if twice:
        raise UsageError(f"{twice} problems have the id of another; each is played once")
    return problems[: task.limit]


def _rules(task: Task) -> Ruleset:
    """Return the rules of a task, with tolerances of a kernel spec."""
    rules = precise_rules(task.ruleset, task.precision, task.baseline)
    return rules if _are_problems(task.problems) else rules_for(task.suite, rules)


def _are_problems(given: object) -> TypeGuard[Sequence[Problem]]:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and bool(given)
        and all(isinstance(item, Problem) for item in given)
    )


def _suite_name(task: Task, problems: Sequence[Problem]) -> str:
    return problems[0].suite if _are_problems(task.problems) else str(task.suite)


def _plain(value: Any) -> Any:
    """Return JSON data of a setting."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(item) for name, item in found.items()}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
