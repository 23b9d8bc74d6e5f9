"""Problems of the demonstration: warm start, RL and held-out tables, distinct by canonical form.

Contract: the seed decides which problems are drawn and which operator is withheld. The parts are
those of the Synthetic suite, so no two share a canonical form. Each held-out table tests one thing:

- `compositions`: chains of operators that the warm start shows in other chains;
- `shapes`: single operators that the warm start shows on other kinds of shape;
- `composed`: the operator of which the warm start shows only wrong kernels;
- `unseen_operator`: an operator that occurs nowhere else, on which the model is expected to fail.

Not covered: whether a kernel for a problem is short enough for the model.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kernelgym.errors import UsageError
from kernelgym.suites.synthetic import PARTS, SyntheticSuite, canonical_form, part_of
from kernelgym.types import Problem

FAMILIES = (
    "elementwise",
    "binary",
    "reduction",
    "softmax",
    "norm",
    "chain",
    "chain_reduction",
    "chain_softmax",
)
"""Families of the Synthetic suite whose kernels are short; matrix products are not among them."""
PLAIN_FAMILIES = tuple(sorted({*FAMILIES} - {"norm", "chain_softmax"}))
"""Families of `FAMILIES` without norms and chains that end in a softmax, whose kernels are the
longest."""
COMPOSED = "silu"
"""Operator of which the warm start never shows a right kernel; training can find it as x *
sigmoid(x)."""
PLAIN_OPERATORS = frozenset(
    {
        *("floor", "sigmoid", "silu", "gelu", "abs", "square", "sin", "exp", "softsign"),
        *("add:full", "sub:full", "mul:full", "max:full", "min:full"),
        *("add:row", "mul:row"),
        *("sum", "mean", "max", "min", "norm2", "softmax", "log_softmax"),
    }
)
"""Operators that a model trained in minutes can learn to compose: those without constants of their
own (``floor`` is relu's canonical name)."""
UNSEEN = ("elu", "gelu_tanh", "hardswish", "mish", "softplus", "softsign")
"""Operators of which the seed withholds one from training; no other problem needs them."""


@dataclass(frozen=True, slots=True)
class Splits:
    """The problems of one demonstration; no two fields share a canonical form."""

    warmstart: tuple[Problem, ...]
    """Problems whose noisy answers the warm start learns from."""
    rl: tuple[Problem, ...]
    """Problems on which the model is trained with the judge's rewards."""
    compositions: tuple[Problem, ...]
    """Held-out chains of operators that training shows in other chains, one per canonical form."""
    shapes: tuple[Problem, ...]
    """Held-out single operators on kinds of shape that training does not show, one per canonical
    form."""
    composed: tuple[Problem, ...]
    """Held-out problems with the operator `COMPOSED`, one per canonical form."""
    unseen_operator: tuple[Problem, ...]
    """Held-out problems with the operator `withheld`, on which the model is expected to fail, one
    per canonical form."""
    withheld: str
    """Operator that occurs only in the problems of `unseen_operator`."""


def operators_of(problem: Problem) -> frozenset[str]:
    """Return the operators of a problem's canonical form, such as ``silu`` and ``max:row``.

    Raises:
        ProblemError: If the problem is not one of the Synthetic suite's.
    """
    return _operators_in(canonical_form(problem))


def _operators_in(form: str) -> frozenset[str]:
    words, _, _ = form.partition(" | ")
    return frozenset(word for word in words.split() if word != ";")


@dataclass(frozen=True, slots=True)
class Scope:
    """Rule that selects problems of the Synthetic suite for a demonstration."""

    listed: int = 600
    """Number of problems with a single operator, at each level, that are examined."""
    chains: int | None = None
    """Number of chains of operators that are examined; None for as many as `listed`."""
    families: Collection[str] = FAMILIES
    """Names of families; problems of other families are left out."""
    operators: Collection[str] | None = None
    """Names of allowed operators, beside the withheld one; None allows all."""
    operands: int | None = None
    """Largest number of tensors that a problem takes beside the first; None for any number."""
    longest: int = 3
    """Largest number of operators in a chain, a final reduction or softmax included; long chains
    make long kernels."""
    longest_shown: int | None = None
    """Largest number of operators in a chain of the warm start; `longest` if None. Longer chains
    show more pairs of neighbouring operators."""

    def longest_in(self, part: str) -> int:
        """Return the largest number of operators in a chain of one of the suite's parts."""
        if part == "warmstart" and self.longest_shown is not None:
            return self.longest_shown
        return self.longest


def draw_splits(seed: int = 0, scope: Scope | None = None) -> Splits:
    """Draw the problems of one demonstration.

    Args:
        seed: Seed that decides which problems are drawn, and which operator is withheld.
        scope: Rule that selects the problems; `Scope`'s defaults if None.

    Raises:
        UsageError: If `scope.listed` is so small that a part would be empty.
    """
    scope = Scope() if scope is None else scope
    withheld = random.Random(f"demo/withheld/{seed}").choice(UNSEEN)
    suite = SyntheticSuite(seed=seed)
    warmstart: list[_Formed] = []
    rl: list[_Formed] = []
    single: list[_Formed] = []
    chained: list[_Formed] = []
    unseen: list[_Formed] = []
    for level in (1, 2):
        of_part = _by_part(suite, level, scope)
        for part in PARTS:
            for formed in of_part.get(part, ()):
                held = formed.operators
                if scope.operators is not None and not held <= {*scope.operators, withheld}:
                    continue
                if scope.operands is not None and formed.operands > scope.operands:
                    continue
                # A chain that folds into a single operator may be a problem of level 1 as well.
                if level == 2 and not 2 <= len(formed.form.split()) <= scope.longest_in(part):
                    continue
                if withheld in held:
                    unseen.append(formed)
                elif part == "warmstart":
                    warmstart.append(formed)
                elif part == "rl":
                    rl.append(formed)
                else:
                    (single if level == 1 else chained).append(formed)
    seen = frozenset[str]().union(*(each.operators for each in warmstart))
    lone = [each for each in warmstart if each.problem.level == 1]
    alone = frozenset[str]().union(*(each.operators for each in lone))
    chained = [each for each in chained if each.operators <= seen]
    single = [each for each in single if each.operators <= alone]
    found = Splits(
        tuple(each.problem for each in warmstart),
        tuple(each.problem for each in rl),
        _one_per_form(each for each in chained if COMPOSED not in each.operators),
        _one_per_form(each for each in single if COMPOSED not in each.operators),
        _one_per_form(each for each in (*single, *chained) if COMPOSED in each.operators),
        _one_per_form(unseen),
        withheld,
    )
    for name in ("warmstart", "rl", "compositions", "shapes", "unseen_operator"):
        if not getattr(found, name):
            raise UsageError(
                f"the first {scope.listed} problems of each level hold none for {name}; "
                "raise Scope.listed, to about 300"
            )
    return found


@dataclass(frozen=True, slots=True)
class _Formed:
    """A problem with its canonical form, which is kept because it is expensive to compute."""

    problem: Problem
    form: str

    @property
    def operators(self) -> frozenset[str]:
        return _operators_in(self.form)

    @property
    def operands(self) -> int:
        """Number of tensors that the problem takes beside the first: 1 for ``add:full``."""
        return self.form.partition(" | ")[0].count(":")


def _by_part(suite: SyntheticSuite, level: int, scope: Scope) -> dict[str, list[_Formed]]:
    """Return the examined problems of a level, by part of the suite."""
    found: dict[str, list[_Formed]] = {}
    if level == 1:
        listed = suite.problems(level=1, ids=f"1-{scope.listed}")
        drawn: Iterable[Problem] = (each for each in listed if each.family in scope.families)
    else:
        longest = max(map(scope.longest_in, PARTS))
        numbers = range(1, 1 + (scope.chains or scope.listed))
        drawn = suite.chains(numbers, scope.families, longest)
    for problem in drawn:
        formed = _Formed(problem, canonical_form(problem))
        found.setdefault(part_of(formed.form), []).append(formed)
    return found


def _one_per_form(problems: Iterable[_Formed]) -> tuple[Problem, ...]:
    first: dict[str, Problem] = {}
    for formed in problems:
        first.setdefault(formed.form, formed.problem)
    return tuple(first.values())
