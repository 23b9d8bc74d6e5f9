"""Resolving the options of an eval run to its plan.

Contract: `resolve` runs nothing and opens no connection, except those that a suite needs to list
its problems. The plan holds the digest of every problem and of all first prompts, so a run is
resumed with the same prompts or refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from kernelgym.benchmark.run.options import EvalSettings, EvalTask, json_object
from kernelgym.benchmark.run.plan import EvalPlan
from kernelgym.devices import check_device
from kernelgym.episodes.stopping import check_stop_rule
from kernelgym.errors import ProblemError, UsageError
from kernelgym.languages import check_language
from kernelgym.machine import installed_version
from kernelgym.prompts.observer import render
from kernelgym.retrieval.prompt_part import ready_retrieval
from kernelgym.rewards import check_speed, check_trials
from kernelgym.rulesets import Ruleset, precise_rules, with_run_seconds
from kernelgym.suites import suite
from kernelgym.suites.known_hygiene import passing
from kernelgym.suites.spec_suite import rules_for
from kernelgym.types import Problem, text_digest


def resolve(
    task: EvalTask, policy: Mapping[str, Any], name: str = ""
) -> tuple[EvalPlan, tuple[Problem, ...]]:
    """Return the plan of a task, and its problems.

    Args:
        task: Options of the run.
        policy: Settings of the policy.
        name: Name of the run; made of policy and suite if empty.

    Raises:
        UsageError: If an option makes no sense, or chooses no problem.
    """
    for option in ("samples", "turns", "limit"):
        value = getattr(task, option)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{option} is a whole number, got {value!r}")
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1, got {value}")
    settings = {each.name: _plain(getattr(task, each.name)) for each in fields(EvalSettings)}
    if isinstance(task.hardware, str) and task.hardware.startswith("{"):
        settings["hardware"] = json_object("hardware (--hardware)", task.hardware)
    device = check_device(task.device)
    rules = _rules(task, task.timing_baseline)
    check_language(task.language, device, rules.precision)
    problems = _chosen(task, device)
    if task.retrieval is not None:
        settings["retrieval"] = _plain(ready_retrieval(task.retrieval, task.language, device))
    plan = EvalPlan(
        **settings
        | {
            "name": name or default_name(policy, task),
            "policy": dict(policy),
            "suite": problems[0].suite if _are_problems(task.problems) else str(task.suite),
            "problems": tuple((problem.id, problem.digest) for problem in problems),
            "ruleset": rules.label,
            "device": device,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "kernelgym": installed_version("kernelgym"),
        }
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


def problems_of(plan: EvalPlan) -> tuple[Problem, ...]:
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


def default_name(policy: Mapping[str, Any], task: EvalTask) -> str:
    """Return a run's name: the model's, the suite's and the level."""
    model = str(policy.get("model") or policy.get("kind", "policy")).rstrip("/")
    level = "" if task.level is None else f"-L{task.level}"
    given = f"{model.rpartition('/')[2]}-{Path(task.suite).name}{level}"
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in given).lstrip(".-") or "run"


def _chosen(task: EvalTask, device: str) -> tuple[Problem, ...]:
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
        problems = passing(problems, _rules(task, ""), device)
        if not problems:
            raise ProblemError("every problem of the choice is degenerate; choose others")
    twice = len(problems) - len({problem.id for problem in problems})
    if twice:
        raise UsageError(f"{twice} problems were given twice (same id); each is played once")
    return problems[: task.limit]


def _rules(task: EvalTask, baseline: str) -> Ruleset:
    """Return the rules of a task, with tolerances of a kernel spec."""
    rules = precise_rules(task.ruleset, task.precision, baseline)
    if task.run_seconds is not None:
        rules = with_run_seconds(rules, task.run_seconds)
    return rules if _are_problems(task.problems) else rules_for(task.suite, rules)


def _are_problems(given: object) -> TypeGuard[Sequence[Problem]]:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and bool(given)
        and all(isinstance(item, Problem) for item in given)
    )


def _plain(value: Any) -> Any:
    """Return a setting of an eval run as JSON data."""
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
