"""The problems of the demonstration: warm start, RL, and held-out tables, apart by canonical form.

Contract: a function of the seed. The parts are the Synthetic suite's own, so no two share a
canonical form; a seed decides which problems are drawn and which operator nobody sees. What is held
out is held out for one reason a table: `compositions` are chains of operators that the warm start
shows in other chains, `shapes` single operators that it shows on other kinds of shape, and
`unseen_operator` is expected to fail, since its operator occurs nowhere else.

Whether a kernel for a problem is short enough for the model is not looked at.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from kernelgym.errors import UsageError
from kernelgym.suites.synthetic import SyntheticSuite, canonical_form
from kernelgym.types import Problem

__all__ = ["FAMILIES", "LONGEST", "UNSEEN", "Splits", "draw_splits", "operators_of"]

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
LONGEST = 3
"""Most operators of a chain, its tail included; longer ones make long kernels."""
UNSEEN = ("elu", "gelu_tanh", "hardswish", "mish", "softplus", "softsign")
"""Operators of which a seed holds one back: nothing else of the demonstration needs them."""


@dataclass(frozen=True, slots=True)
class Splits:
    """The problems of one demonstration; no two fields share a canonical form."""

    warmstart: tuple[Problem, ...]
    """What the warm start's answers are for."""
    rl: tuple[Problem, ...]
    """What is trained on with the judge's rewards."""
    compositions: tuple[Problem, ...]
    """Held out: chains of seen operators, one per canonical form."""
    shapes: tuple[Problem, ...]
    """Held out: single operators on kinds of shape unseen for them, one per canonical form."""
    unseen_operator: tuple[Problem, ...]
    """Held out and expected to fail: whatever holds `withheld`, one per canonical form."""
    withheld: str
    """The operator that occurs in no other field."""


def operators_of(problem: Problem) -> frozenset[str]:
    """Return the operators of a problem's canonical form, such as ``silu`` and ``max:row``.

    Raises:
        ProblemError: If the problem is not one of the Synthetic suite's.
    """
    words, _, _ = canonical_form(problem).partition(" | ")
    return frozenset(word for word in words.split() if word != ";")


def draw_splits(seed: int = 0, listed: int = 600) -> Splits:
    """Draw the problems of one demonstration.

    Args:
        seed: Decides which problems are drawn, and which operator is held back.
        listed: How many problems of each of the two levels are looked through.

    Raises:
        UsageError: If so few are listed that a part would be empty.
    """
    withheld = random.Random(f"demo/withheld/{seed}").choice(UNSEEN)
    suite = SyntheticSuite(seed=seed, per_level=listed)
    warmstart: list[Problem] = []
    rl: list[Problem] = []
    single: list[Problem] = []
    chained: list[Problem] = []
    unseen: list[Problem] = []
    for level in (1, 2):
        for part, problems in _by_part(suite, level).items():
            for problem in problems:
                operators = operators_of(problem)
                # A chain that folds into a single operator may be a problem of level 1 as well.
                if level == 2 and not 2 <= len(canonical_form(problem).split()) <= LONGEST:
                    continue
                if withheld in operators:
                    unseen.append(problem)
                elif part == "warmstart":
                    warmstart.append(problem)
                elif part == "rl":
                    rl.append(problem)
                else:
                    (single if level == 1 else chained).append(problem)
    seen = frozenset[str]().union(*map(operators_of, warmstart))
    alone = frozenset[str]().union(*(operators_of(p) for p in warmstart if p.level == 1))
    found = Splits(
        tuple(warmstart),
        tuple(rl),
        _one_per_form(p for p in chained if operators_of(p) <= seen),
        _one_per_form(p for p in single if operators_of(p) <= alone),
        _one_per_form(unseen),
        withheld,
    )
    for name in ("warmstart", "rl", "compositions", "shapes", "unseen_operator"):
        if not getattr(found, name):
            raise UsageError(
                f"{listed} problems of each level leave nothing for {name}; list more, 300 or so"
            )
    return found


def _by_part(suite: SyntheticSuite, level: int) -> dict[str, list[Problem]]:
    """Return the listed problems of our families by the suite's part."""
    found: dict[str, list[Problem]] = {}
    for part in suite.splits:
        try:
            problems = suite.problems(level=level, split=part)
        except UsageError:  # so few are listed that the part has none
            continue
        found[part] = [problem for problem in problems if problem.family in FAMILIES]
    return found


def _one_per_form(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(canonical_form(problem), problem)
    return tuple(first.values())
