"""The problems of the demonstration: warm start, RL, and held-out tables, apart by canonical form.

Contract: a function of the seed. The parts are the Synthetic suite's own, so no two share a
canonical form; a seed decides which problems are drawn and which operator nobody sees. What is held
out is held out for one reason a table: `compositions` are chains of operators that the warm start
shows in other chains, `shapes` single operators that it shows on other kinds of shape, `composed`
holds the operator that it shows in wrong forms only, and `unseen_operator` is expected to fail,
since its operator occurs nowhere else.

Whether a kernel for a problem is short enough for the model is not looked at.
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
"""Families of the suite whose kernels are short; between them, every skeleton but that of dots."""
PLAIN_FAMILIES = tuple(sorted({*FAMILIES} - {"norm", "chain_softmax"}))
"""Without norms and chains that end in a softmax, whose kernels are the longest."""
COMPOSED = "silu"
"""The operator whose right form the warm start never shows; x * sigmoid(x) makes it."""
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
"""Operators of which a seed holds one back: nothing else of the demonstration needs them."""


@dataclass(frozen=True, slots=True)
class Splits:
    """The problems of one demonstration; no two fields share a canonical form."""

    warmstart: tuple[Problem, ...]
    """Problems of the warm start's answers."""
    rl: tuple[Problem, ...]
    """Problems that are trained on with the judge's rewards."""
    compositions: tuple[Problem, ...]
    """Held out: chains of seen operators, one per canonical form."""
    shapes: tuple[Problem, ...]
    """Held out: single operators on kinds of shape unseen for them, one per canonical form."""
    composed: tuple[Problem, ...]
    """Held out: whatever else holds `COMPOSED`, one per canonical form."""
    unseen_operator: tuple[Problem, ...]
    """Held out and expected to fail: whatever holds `withheld`, one per canonical form."""
    withheld: str
    """The operator that occurs in no other field."""


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
    """Which problems of the suite a demonstration is about."""

    listed: int = 600
    """Single operators that are looked through."""
    chains: int | None = None
    """Chains that are; None for as many as `listed`."""
    families: Collection[str] = FAMILIES
    """Problems of other families are left out."""
    operators: Collection[str] | None = None
    """Problems with others are left out, but for the one held back; None for all."""
    operands: int | None = None
    """Most tensors that a problem takes beside the first; None for any number."""
    longest: int = 3
    """Most operators of a chain, its tail included; longer ones make long kernels."""
    longest_shown: int | None = None
    """The same of the warm start's, None for the same number: longer chains show in more places
    what follows on what."""

    def longest_in(self, part: str) -> int:
        """Return the most operators of a chain in one of the suite's parts."""
        if part == "warmstart" and self.longest_shown is not None:
            return self.longest_shown
        return self.longest


def draw_splits(seed: int = 0, scope: Scope | None = None) -> Splits:
    """Draw the problems of one demonstration.

    Args:
        seed: Decides which problems are drawn, and which operator is held back.
        scope: What they are drawn from; `Scope`'s defaults if None.

    Raises:
        UsageError: If so few are listed that a part would be empty.
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
                f"{scope.listed} problems of each level leave nothing for {name}; "
                "list more, 300 or so"
            )
    return found


@dataclass(frozen=True, slots=True)
class _Formed:
    """A problem and its canonical form, which takes as long to find out as the problem itself."""

    problem: Problem
    form: str

    @property
    def operators(self) -> frozenset[str]:
        return _operators_in(self.form)

    @property
    def operands(self) -> int:
        """Tensors beside the first: ``add:full`` takes one, ``sum`` none."""
        return self.form.partition(" | ")[0].count(":")


def _by_part(suite: SyntheticSuite, level: int, scope: Scope) -> dict[str, list[_Formed]]:
    """Return the problems of a level that are looked through, by the suite's part."""
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
