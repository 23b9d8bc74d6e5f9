"""`SearchTask`: a problem, its shapes, and a correct kernel to start from."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from kernelgym import Kernel, Problem, UnknownName, UsageError, get_problem
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.spec import KernelSpec
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.types import text_digest
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves.table import MOVES
from kernelgym_train.mcgs.shapes import TaskShape
from kernelgym_train.mcgs.variant import read_variant

__all__ = ["SearchTask", "read_task", "task_of", "task_of_spec"]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A problem and its start kernel."""

    name: str
    """A folder's name: letters, digits, ``_``, ``-`` and ``.``."""
    problem: Problem
    """What is shown of the task; of a kernel spec, the first shape that is."""
    start: Kernel
    shapes: tuple[TaskShape, ...] = ()
    """Of a kernel spec; empty where the problem is all."""
    spec: KernelSpec | None = None
    """The kernel spec that it was read from."""

    @property
    def approximate(self) -> bool:
        """True if its contract allows less accurate results."""
        return self.spec is not None and self.spec.contract.allow_approximate

    @property
    def weight(self) -> float:
        """Its share of a budget, beside other tasks' weights."""
        return 1.0 if self.spec is None else self.spec.weight

    def rules(self, base: str | Ruleset) -> Ruleset:
        """Return a ruleset, with the task's tolerances if it has any."""
        return find_ruleset(base) if self.spec is None else self.spec.rules(base)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that equal tasks share."""
        shapes = "".join(f"\0{s.problem.digest}\0{s.weight}\0{s.role}" for s in self.shapes)
        return text_digest(f"{self.problem.digest}\0{self.start.digest}{shapes}")


def task_of(problem: Problem, start: Kernel, name: str = "") -> SearchTask:
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
    return SearchTask(re.sub(r"[^\w.-]+", "_", name).strip("._") or "kernel", problem, start)


def task_of_spec(given: KernelSpec | str | Path) -> SearchTask:
    """Return the task of a kernel spec.

    Args:
        given: The spec, or its file.

    Raises:
        UsageError: If it is no spec, or its kernel is none that a search can change.
    """
    suite = SpecSuite(given)
    spec = suite.spec
    whole = sum(shape.weight for shape in spec.shapes if shape.timed)
    shapes = tuple(
        TaskShape(
            spec.shape_name(shape),
            problem,
            shape.weight / whole if shape.timed else 0.0,
            shape.role,
        )
        for shape, problem in zip(spec.shapes, suite.problems(), strict=True)
    )
    shown = next((each for each in shapes if not each.kept), shapes[0])
    plain = task_of(shown.problem, suite.kernel, spec.name)
    return dataclasses.replace(plain, shapes=shapes, spec=spec)


def read_task(given: str, problem: str, kernel: str, language: str) -> SearchTask:
    """Return the task that a command names.

    Args:
        given: ``example:NAME``, the file of a kernel spec, or empty.
        problem: Id or file of a problem, or empty.
        kernel: File of the start kernel, or empty.
        language: The kernel's language.

    Raises:
        UsageError: If both or neither of `given`, and `problem` with `kernel`, are there, or what
            they name is not.
    """
    if given and (problem or kernel):
        raise UsageError("give input= or problem= with kernel=, not both")
    if given.endswith(".json"):
        return task_of_spec(given)
    if given:
        kind, _, name = given.partition(":")
        if kind != "example":
            raise UsageError(
                f"input={given} is no input; give the file of a kernel spec (*.json), "
                f"example:{{{','.join(EXAMPLES)}}}, or problem= and kernel="
            )
        if name not in EXAMPLES:
            raise UnknownName("example", name, EXAMPLES)
        return task_of(*EXAMPLES[name], name)
    if not problem or not kernel:
        missing = "kernel=FILE" if problem else "problem=ID_or_FILE" if kernel else "input="
        raise UsageError(
            f"{missing} is missing; give input=example:{{{','.join(EXAMPLES)}}}, "
            "input=SPEC.json, or problem=ID_or_FILE and kernel=FILE"
        )
    path = Path(kernel)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the kernel {kernel}: {error}") from None
    return task_of(get_problem(problem), Kernel(source, language), path.stem)
