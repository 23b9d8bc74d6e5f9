"""A kernel spec as a suite, with one problem for each shape.

Ids are the spec's name and the shape's, such as ``row_softmax/rows=1024``. Shapes that are hidden
or ``both`` are of the split ``hidden``, all others of the split ``tune``.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from kernelgym.errors import UsageError
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.base import Ids, check_choice, find_problem, non_empty, select_ids
from kernelgym.suites.spec import KernelSpec, SpecShape
from kernelgym.suites.spec_files import read_spec
from kernelgym.suites.spec_modules import kernel_source, problem_source
from kernelgym.types import Kernel, Problem


def problem_of(spec: KernelSpec, shape: SpecShape) -> Problem:
    """Return the problem of one shape of a kernel spec.

    Raises:
        UsageError: If the problem that a spec refers to cannot be found, or a file be read.
    """
    reference = ""
    if (given := spec.given_reference) is not None and given.problem:
        from kernelgym.suites import get_problem

        reference = get_problem(given.problem).source
    name = spec.shape_name(shape)
    source = problem_source(spec, shape, reference)
    return Problem(f"{spec.name}/{name}", spec.name, 0, name, source, spec.name)


def spec_problem(given: str) -> Problem:
    """Return one problem of a spec's file.

    Args:
        given: The file, and after ``#`` the shape's name if the spec has several.

    Raises:
        UsageError: If the file is not a spec, or has several shapes and none is named.
    """
    path, _, name = given.partition("#")
    suite = SpecSuite(path)
    if name:
        return suite.get(f"{suite.name}/{name}")
    if len(suite.spec.shapes) > 1:
        raise UsageError(
            f"{path} has {len(suite.spec.shapes)} shapes; name one, as in "
            f"{path}#{suite.spec.shape_name(suite.spec.shapes[0])}"
        )
    return suite.problems()[0]


def rules_for(given: str | Path, base: str | Ruleset) -> Ruleset:
    """Return a ruleset, with the tolerances of the spec that is named.

    Args:
        given: A problem or a suite; only a spec's file, with or without ``#`` and a shape, changes
            anything.
        base: The ruleset.

    Raises:
        UsageError: If the file is not a spec.
    """
    path = str(given).partition("#")[0]
    return SpecSuite(path).rules(base) if path.endswith(".json") else find_ruleset(base)


class SpecSuite:
    """The problems of one kernel spec.

    Args:
        given: The spec, or its file.

    Raises:
        UsageError: If the file is not a spec.
    """

    levels: tuple[int, ...] = (0,)
    splits: tuple[str, ...] = ("tune", "hidden")

    def __init__(self, given: KernelSpec | str | Path) -> None:
        self.spec = given if isinstance(given, KernelSpec) else read_spec(given)
        self.name = self.spec.name

    def problems(
        self,
        level: int | None = None,
        ids: Ids | None = None,
        split: str | None = None,
    ) -> tuple[Problem, ...]:
        """See `kernelgym.suites.base.Suite.problems`."""
        check_choice(f"level of {self.name}", level, self.levels)
        check_choice(f"split of {self.name}", split, self.splits)
        hidden = {None: None, "tune": False, "hidden": True}[split]
        chosen = tuple(
            problem
            for problem, shape in zip(self._problems, self.spec.shapes, strict=True)
            if hidden is None or hidden == (shape.role != "tune")
        )
        if ids is not None and chosen:
            chosen = select_ids(chosen, ids)
        return non_empty(chosen, self.name, level=level, ids=ids, split=split)

    def get(self, problem_id: str) -> Problem:
        """See `kernelgym.suites.base.Suite.get`."""
        return find_problem(self._problems, problem_id)

    def rules(self, base: str | Ruleset) -> Ruleset:
        """Return a ruleset, with the spec's tolerances if it has any."""
        return self.spec.rules(base)

    @cached_property
    def kernel(self) -> Kernel:
        """Kernel of the spec."""
        return Kernel(kernel_source(self.spec), self.spec.kind)

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        return tuple(problem_of(self.spec, shape) for shape in self.spec.shapes)
