"""`SearchTask`: a problem, its shapes, and a correct kernel to start from."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from kernelgym import Kernel, Problem, UnknownName, UsageError, get_problem
from kernelgym.answers.screening import language_of
from kernelgym.errors import ProblemError
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.kernelbench import KernelBenchSuite, split_of
from kernelgym.suites.spec import KernelSpec
from kernelgym.suites.spec_files import MOST_TEXT_BYTES, check_file
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.suites.synthetic.canonical import part_of
from kernelgym.suites.synthetic.suite import canonical_form
from kernelgym.types import text_digest
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.shapes import TaskShape
from kernelgym_train.mcgs.variant import read_variant


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Problem of a search, with the correct kernel at which the search starts."""

    name: str
    """Name of the task's folder: letters, digits, ``_``, ``-`` and ``.``."""
    problem: Problem
    """Problem that proposers are shown; of a kernel spec, the first shape that is not hidden."""
    start: Kernel
    shapes: tuple[TaskShape, ...] = ()
    """Shapes of a kernel spec; empty for a task without a spec."""
    spec: KernelSpec | None = None
    """Kernel spec of the task; None for a task without one."""
    file: str = ""
    """Path of the spec's file; empty if the spec was not read from one."""

    @property
    def approximate(self) -> bool:
        """Whether the spec's contract allows less accurate results."""
        return self.spec is not None and self.spec.contract.allow_approximate

    @property
    def is_held_out(self) -> bool:
        """Whether the problem's suite reserves it for evaluations."""
        problem = self.problem
        if problem.suite == KernelBenchSuite.name:
            return "test" in split_of(problem)
        try:
            return problem.suite == "Synthetic" and part_of(canonical_form(problem)) == "heldout"
        except ProblemError:  # a problem of the caller's own that names the suite
            return False

    @property
    def weight(self) -> float:
        """Weight of the task where several tasks share a budget."""
        return 1.0 if self.spec is None else self.spec.weight

    def rules(self, base: str | Ruleset) -> Ruleset:
        """Return a ruleset with the tolerances of the task's kernel spec, if it has any."""
        return find_ruleset(base) if self.spec is None else self.spec.rules(base)

    @property
    def digest(self) -> str:
        """Digest of problem, start and shapes: sixteen hexadecimal digits."""
        shapes = "".join(f"\0{s.problem.digest}\0{s.weight}\0{s.role}" for s in self.shapes)
        return text_digest(f"{self.problem.digest}\0{self.start.digest}{shapes}")


def task_of(
    problem: Problem, start: Kernel, name: str = "", *, any_form: bool = False
) -> SearchTask:
    """Return the task of a problem and a start kernel.

    Args:
        problem: The problem.
        start: The kernel.
        name: Name of the task; made of the problem's if empty.
        any_form: Whether a writer changes the kernel, so that rules need not be able to.

    Raises:
        UsageError: If a search cannot change the kernel.
    """
    if start.language not in LANGUAGES:
        raise UnknownName("language", start.language, LANGUAGES)
    if start.language not in OWN_MOVES and not any_form:
        known = ", ".join(OWN_MOVES)
        raise UsageError(
            f"language={start.language} has no moves by rules, so that only a model can change its "
            f"kernels; give llm_model= or proposer= (with moves by rules: {known})"
        )
    read_variant(start, any_form=any_form)
    name = name or problem.name or problem.id
    return SearchTask(re.sub(r"[^\w.-]+", "_", name).strip("._") or "kernel", problem, start)


def task_of_spec(given: KernelSpec | str | Path, *, any_form: bool = False) -> SearchTask:
    """Return the task of a kernel spec.

    Args:
        given: The spec, or its file.
        any_form: Whether a writer changes the kernel, so that rules need not be able to.

    Raises:
        UsageError: If the file is not a spec, or a search cannot change its kernel.
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
    plain = task_of(shown.problem, suite.kernel, spec.name, any_form=any_form)
    file = "" if isinstance(given, KernelSpec) else str(Path(given).resolve())
    return dataclasses.replace(plain, shapes=shapes, spec=spec, file=file)


def read_task(
    given: str, problem: str, kernel: str, language: str, *, any_form: bool = False
) -> SearchTask:
    """Return the task that a command names.

    Args:
        given: ``example:NAME``, the file of a kernel spec, or empty.
        problem: Id or file of a problem, or empty.
        kernel: File of the start kernel, or empty.
        language: The kernel's language; read from its text if empty.
        any_form: Whether a writer changes the kernel, so that rules need not be able to.

    Raises:
        UsageError: Unless either `given`, or `problem` with `kernel`, is given and exists.
    """
    if given and (problem or kernel):
        raise UsageError("give input= or problem= with kernel=, not both")
    if given.endswith(".json"):
        return task_of_spec(given, any_form=any_form)
    if given:
        kind, _, name = given.partition(":")
        if kind != "example":
            raise UsageError(
                f"input={given} is not an input; give the file of a kernel spec (*.json), "
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
    return task_of(get_problem(problem), read_kernel(path, language), path.stem, any_form=any_form)


def read_kernel(path: Path, language: str) -> Kernel:
    """Return the kernel of a module's file.

    Args:
        path: The file.
        language: The kernel's language; read from its text if empty, and C++ if that shows none.

    Raises:
        UsageError: If the file cannot be read.
    """
    try:
        check_file(path, MOST_TEXT_BYTES)  # a pipe would be waited for without end
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, UsageError) as error:
        raise UsageError(f"cannot read the kernel {path}: {error}") from None
    return Kernel(source, language or language_of(source) or "cpp")
