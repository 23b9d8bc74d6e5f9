"""Problems as tasks in Harbor's format, which other agents' harnesses read.

A task is a folder: ``instruction.md``, ``task.toml``, ``environment/`` (the agent's image),
``tests/`` (the verifier's image and the test script), and ``solution/`` where the suite writes
right kernels. Contract:

- the verifier is a container of its own, to which only ``/app/kernel.py`` is carried over, so that
  nothing else that an agent does there reaches the grade;
- the test script grades by `kernelgym.workspace.grading`;
- the same problem and settings give the same files.

The images are not built here.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kernelgym.errors import UnsupportedLanguage, UsageError
from kernelgym.languages import language as find_language
from kernelgym.machine import installed_version
from kernelgym.rulesets import Ruleset
from kernelgym.suites.synthetic import solve
from kernelgym.text_templates import filled
from kernelgym.types import Problem
from kernelgym.workspace.folder import KERNEL_FILE, problem_text, stub
from kernelgym.workspace.grading import ABOUT_FILE, EVALUATOR_VARIABLE, PROBLEM_FILE

AGENT_S = 3600
"""Seconds that an agent may work on a task."""
_GRADE_S = 1200
_BUILD_S = 3600
_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings that all tasks of an export share."""

    language: str
    """Language of the kernels."""
    device: str
    """Device that judges the kernels; any but ``cpu`` needs a verdict service."""
    ruleset: Ruleset
    """Rules of the verdicts."""
    install: str
    """Requirement by which pip installs kernelgym in the images."""
    split: str = ""
    """Split that the problems were chosen from; empty for none."""


def task_name(problem: Problem) -> str:
    """Return the name of a problem's task and of its folder."""
    return _SLUG.sub("-", problem.id.lower()).strip("-")


def write_task(out: Path, problem: Problem, settings: TaskSettings) -> Path:
    """Write the task of a problem below a folder and return the task's folder.

    Raises:
        UsageError: If it cannot be written.
    """
    folder = out / task_name(problem)
    try:
        for name, text in task_files(problem, settings).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            if path.suffix == ".sh":
                path.chmod(0o755)
    except OSError as error:
        raise UsageError(
            f"the task cannot be written to {str(folder)!r}: {error.strerror}; give another --out"
        ) from None
    return folder


def task_files(problem: Problem, settings: TaskSettings) -> dict[str, str]:
    """Return the texts of a task's files by their paths in its folder."""
    about = {"problem": _identity(problem)} | _facts(problem, settings)
    language, device = settings.language, settings.device
    filled_with = functools.partial(
        filled,
        "kernelgym.workspace",
        problem=problem_text(problem, language, device, settings.ruleset),
        settings=settings,
        kernel_file=KERNEL_FILE,
        problem_file=PROBLEM_FILE,
        evaluator_variable=EVALUATOR_VARIABLE,
    )
    files = {
        "instruction.md": filled_with("instruction.md.j2"),
        "task.toml": _config(problem, settings),
        "environment/Dockerfile": filled_with("Dockerfile.j2", of_agent=True),
        f"environment/{PROBLEM_FILE}": problem.source,
        f"environment/{KERNEL_FILE}": stub(problem, language),
        "tests/Dockerfile": filled_with("Dockerfile.j2", of_agent=False),
        "tests/test.sh": filled_with("test.sh.j2"),
        f"tests/{PROBLEM_FILE}": problem.source,
        f"tests/{ABOUT_FILE}": json.dumps(about, indent=2) + "\n",
    }
    if (source := _solution(problem, language)) is not None:
        files |= {
            "solution/solve.sh": filled_with("solve.sh.j2"),
            f"solution/{KERNEL_FILE}": source,
        }
    return files


def _solution(problem: Problem, language: str) -> str | None:
    """Return a right kernel for a problem; None if no suite writes one in the language."""
    if problem.suite != "Synthetic":
        return None
    try:
        return solve(problem, cast(Any, language)).source
    except UnsupportedLanguage:
        return None


def _config(problem: Problem, settings: TaskSettings) -> str:
    is_cpu = settings.device == "cpu"
    environment = {"build_timeout_sec": _BUILD_S, "cpus": 2, "memory_mb": 8192}
    entry = find_language(settings.language)
    tables: dict[str, Mapping[str, object]] = {
        "task": {
            "name": f"kernelgym/{task_name(problem)}",
            "description": f"Write a fast {entry.title} kernel for {problem.name}.",
            "keywords": ["gpu-kernels", settings.language, problem.suite],
        },
        "metadata": _identity(problem) | _facts(problem, settings),
        "agent": {"timeout_sec": AGENT_S, "user": "agent"},
        "verifier": {"timeout_sec": _GRADE_S, "environment_mode": "separate"},
        # The key of the service is for the verifier alone: the agent's container never has it.
        "verifier.env": {
            name: f"${{{name}:-}}" for name in (EVALUATOR_VARIABLE, "KERNELGYM_API_KEY")
        },
        "verifier.environment": environment,
        "environment": environment if is_cpu else {**environment, "gpus": 1},
    }
    lines = ['schema_version = "1.4"', f'artifacts = ["/app/{KERNEL_FILE}"]']
    for name, table in tables.items():
        # Texts, numbers and lists of JSON are written alike in TOML.
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(v)}" for key, v in table.items())]
    return "\n".join(lines) + "\n"


def _identity(problem: Problem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in ("id", "suite", "level", "name", "family")}


def _facts(problem: Problem, settings: TaskSettings) -> dict[str, object]:
    return {
        "digest": problem.digest,
        "language": settings.language,
        "device": settings.device,
        "ruleset": settings.ruleset.label,
        "split": settings.split,
        "kernelgym": installed_version("kernelgym"),
    }
