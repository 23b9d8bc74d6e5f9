"""The suite: procedural problems by level, number and part.

Problems are numbered from 1 and there is no last one: `per_level` says how many are listed, `get`
gives any. The three splits share no canonical form (see `canonical`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from kernelgym.errors import UnknownName, UsageError
from kernelgym.suites.base import Ids, check_choice, non_empty, parse_ids
from kernelgym.suites.synthetic.canonical import PARTS, form_of, part_of
from kernelgym.suites.synthetic.reference import write_reference
from kernelgym.suites.synthetic.source import (
    LEVELS,
    glance_at,
    make_id,
    make_problem,
    parse_id,
    spec_of,
)
from kernelgym.suites.synthetic.spec import Preset, Spec
from kernelgym.types import Problem


def canonical_form(problem: Problem | Spec) -> str:
    """Return the canonical form of a problem: equivalent problems have the same text.

    Raises:
        ProblemError: If the problem is not one of this suite's.
    """
    return form_of(problem if isinstance(problem, Spec) else spec_of(problem))


def respelled(problem: Problem, spelling: int) -> Problem:
    """Return a problem whose reference spells the same operators another way.

    Its id stays; its source, and so its digest, are not the suite's own any more.

    Args:
        problem: One of this suite's.
        spelling: Number that decides which of the equivalent spellings are taken.

    Raises:
        ProblemError: If the problem is not one of this suite's.
    """
    spec = replace(spec_of(problem), spelling=spelling)
    return replace(problem, source=write_reference(spec))


@dataclass(frozen=True, slots=True)
class SyntheticSuite:
    """Procedural problems of three levels: single operators, fused chains, small blocks.

    Raises:
        UnknownName: If `size` is not a preset.
        UsageError: If `seed` is no whole number, or `per_level` is below 1.
    """

    seed: int = 0
    size: Preset = "cpu"
    """Preset of sizes: ``cpu`` for the Triton interpreter, ``gpu`` for tensors worth timing."""
    per_level: int = 100
    """Number of problems of each level that are listed."""

    def __post_init__(self) -> None:
        check_choice("size of Synthetic", self.size, ("cpu", "gpu"))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"seed must be a whole number, got {self.seed!r}")
        if abs(self.seed) >= 10**18:
            raise UsageError(f"seed must lie within 18 digits, got {self.seed}")
        if not isinstance(self.per_level, int) or not 1 <= self.per_level < 10**9:
            raise UsageError(f"per_level must be a whole number from 1, got {self.per_level!r}")

    @property
    def name(self) -> str:
        """Name of the suite, the first part of every id."""
        return "Synthetic"

    @property
    def levels(self) -> tuple[int, ...]:
        """1: single operators, 2: fused chains, 3: small blocks."""
        return LEVELS

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the suite's parts, which hold half, 30 % and 20 % of all canonical forms."""
        return PARTS

    def problems(
        self,
        level: int | None = None,
        ids: Ids | None = None,
        split: str | None = None,
    ) -> tuple[Problem, ...]:
        """See `kernelgym.suites.base.Suite.problems`."""
        check_choice("level of Synthetic", level, self.levels)
        check_choice("split of Synthetic", split, self.splits)
        levels = self.levels if level is None else (level,)
        found = self._listed(levels) if ids is None else self._chosen(levels, ids)
        return non_empty(
            (p for p in found if split is None or part_of(canonical_form(p)) == split),
            self.name,
            level=level,
            ids=ids,
            split=split,
        )

    def chains(
        self, numbers: Iterable[int], families: Collection[str], longest: int
    ) -> Iterator[Problem]:
        """Yield the short problems of some families, among given numbers of level 2.

        Most others are passed over before they are drawn.

        Args:
            numbers: Their numbers in the level.
            families: Families of the problems, such as ``chain`` and ``chain_reduction``.
            longest: Most operators, a tail included; not looked at in families that do not begin
                with ``chain``.
        """
        for number in numbers:
            possible, length = glance_at(self.seed, self.size, number)
            if length <= longest and not set(families).isdisjoint(possible):
                problem = make_problem(self.seed, self.size, 2, number)
                if problem.family in families:
                    yield problem

    def get(self, problem_id: str) -> Problem:
        """See `kernelgym.suites.base.Suite.get`; ids of any seed, size and number resolve."""
        parts = parse_id(problem_id) if isinstance(problem_id, str) else None
        if parts is None:
            raise UnknownName(
                "problem",
                problem_id,
                [make_id(self.seed, self.size, level, 1) for level in self.levels],
                "Problem numbers run from 1 to 999999999; another seed or size is written "
                "Synthetic/L1/17@seed3-gpu.",
            )
        return make_problem(*parts)

    def _listed(self, levels: tuple[int, ...]) -> Iterator[Problem]:
        for level in levels:
            for index in range(1, self.per_level + 1):
                yield make_problem(self.seed, self.size, level, index)

    def _chosen(self, levels: tuple[int, ...], ids: Ids) -> tuple[Problem, ...]:
        chosen: dict[str, Problem] = {}
        for entry in parse_ids(ids):
            found = [p for p in self._matching(levels, entry) if p.level in levels]
            if not found:
                raise UnknownName("problem", entry, [p.id for p in self._listed(levels)])
            chosen.update((problem.id, problem) for problem in found)
        return tuple(chosen.values())

    def _matching(self, levels: tuple[int, ...], entry: str | int) -> Iterator[Problem]:
        """Yield the problems that one entry of a choice names: by number, id or name."""
        if isinstance(entry, int):
            if 1 <= entry < 10**9:
                yield from (make_problem(self.seed, self.size, lv, entry) for lv in levels)
            return
        for text in (entry, f"Synthetic/{entry}"):
            if parts := parse_id(text):
                yield make_problem(*parts)
                return
        yield from (problem for problem in self._listed(levels) if problem.name == entry)
