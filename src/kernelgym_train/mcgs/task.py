"""`Task`: a problem, and a correct kernel to start from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelgym import Kernel, Problem, UnknownName, UsageError, get_problem
from kernelgym.languages import LANGUAGES
from kernelgym.types import text_digest
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves.table import MOVES
from kernelgym_train.mcgs.variant import read_variant

__all__ = ["Task", "read_task", "task_of"]


@dataclass(frozen=True, slots=True)
class Task:
    """A problem and its start kernel."""

    name: str
    """A folder's name: letters, digits, ``_``, ``-`` and ``.``."""
    problem: Problem
    start: Kernel

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that equal tasks share."""
        return text_digest(f"{self.problem.digest}\0{self.start.digest}")


def task_of(problem: Problem, start: Kernel, name: str = "") -> Task:
    """Return a task.

    Raises:
        UsageError: If the kernel is none that a search can change.
    """
    if start.language not in LANGUAGES:
        raise UnknownName("language", start.language, LANGUAGES)
    known = dict.fromkeys(language for move in MOVES.values() for language in move.languages)
    if start.language not in known:
        raise UsageError(
            f"language={start.language} cannot be searched; those that can: {', '.join(known)}"
        )
    read_variant(start)
    name = name or problem.name or problem.id
    return Task(re.sub(r"[^\w.-]+", "_", name).strip("._") or "kernel", problem, start)


def read_task(given: str, problem: str, kernel: str, language: str) -> Task:
    """Return the task that a command names.

    Args:
        given: ``example:NAME``, or empty.
        problem: Id or file of a problem, or empty.
        kernel: File of the start kernel, or empty.
        language: The kernel's language.

    Raises:
        UsageError: If both or neither of `given`, and `problem` with `kernel`, are there, or what
            they name is not.
    """
    if given and (problem or kernel):
        raise UsageError("give input= or problem= with kernel=, not both")
    if given:
        kind, _, name = given.partition(":")
        if kind != "example":
            raise UsageError(
                f"input={given} is no input; give example:{{{','.join(EXAMPLES)}}}, or problem= "
                "and kernel="
            )
        if name not in EXAMPLES:
            raise UnknownName("example", name, EXAMPLES)
        return task_of(*EXAMPLES[name], name)
    if not problem or not kernel:
        missing = "kernel=FILE" if problem else "problem=ID_or_FILE" if kernel else "input="
        raise UsageError(
            f"{missing} is missing; give input=example:{{{','.join(EXAMPLES)}}}, or "
            "problem=ID_or_FILE and kernel=FILE"
        )
    path = Path(kernel)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the kernel {kernel}: {error}") from None
    return task_of(get_problem(problem), Kernel(source, language), path.stem)
