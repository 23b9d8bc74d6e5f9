"""Noisy answers for the warm start: each family of problems has its own share of right answers.

Contract: the problems and the seed decide every answer, and every answer carries its label.
Families are the Synthetic suite's; problems with the operator `COMPOSED` form one of their own,
whose right kernel never occurs, though all of its parts do. The wrong answers of a family prefer
one defect, so that where less than half of the answers are right, the likeliest answer is wrong.
Only defects are used that the suite knows to show on the problem: a load without a mask where sizes
are no multiple of the block, a missing loop where a row is longer than a block. About a tenth of
the answers cheat: they compute in PyTorch, half of them behind a wrong kernel whose result is
thrown away.

`repairs` returns second turns: a broken kernel, the feedback that its label gets, and the same
kernel without the defect. The defect ``wrong_axis`` is left out, since its label does not decide
the feedback. Only families with enough right answers are repaired; in others, repairs would teach
what the low share withholds.

There are few problems to learn from, so each is asked in many spellings (`torch.mul(x, y)`,
`x * y`). Labels come from the suite, and nothing is judged here. They hold on the CPU. A GPU does
not notice a load without a mask that reads valid memory, so that defect is left out there, and the
feedback on an undefined name is the message of Triton's compiler.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgym.prompts.short import question, retry
from kernelgym.suites.synthetic import (
    BrokenKernel,
    Defect,
    broken_variants,
    respelled,
    solve,
)
from kernelgym.types import Message, Problem, Status
from kernelgym_train.demo.dialogue import answer_of, compact, line_count, told
from kernelgym_train.demo.splits import COMPOSED, operators_of

RATES = (0.02, 0.10, 0.25, 0.50)
"""Shares of right answers of families of single operators; see `planted_rates`."""
CHAIN_RATE = 0.36
"""Share of right answers of families of chains."""
CHEATS = 0.10
"""Share of answers that compute in PyTorch."""
MAX_LINES = 32
"""Largest number of lines of an answer's module."""

_STYLES = 48
_TRIES = 16
# Rows of `n_cols` elements are stored without a mask.
_ROWS_STORED = re.compile(r"n_cols\b.*\btl\.store\(out_ptr \+ offsets, \w+\)", re.DOTALL)
_FAVOUR = 0.85
_REPAIRED_FROM = 0.25
_RIGHT_FORM = re.compile(r"\b(\w+) / \(1\.0 \+ tl\.exp\(-\1\)\)")

_GATE = r"1.0 / (1.0 + tl.exp(-\1))"
_NOT_COMPOSED = (
    _GATE,
    rf"\1 + {_GATE}",
    rf"\1 - {_GATE}",
    r"\1 * 1.0 / (2.0 + tl.exp(-\1))",
    r"\1 * 2.0 / (1.0 + tl.exp(-2.0 * \1)) - 1.0",
)


@dataclass(frozen=True, slots=True)
class Example:
    """One answer of the warm start, and the messages that the model reads before it."""

    problem: Problem
    messages: tuple[Message, ...]
    answer: str
    label: str
    """Kind of answer: ``right``, a `kernelgym.suites.synthetic.Defect`, ``not_composed``, ``torch``
    or ``decoy``."""
    expected: Status
    """Status of its verdict under the ruleset ``strict``, on the device that it was written for."""


def family_of(problem: Problem) -> str:
    """Return a problem's family, which decides its share of right answers."""
    return COMPOSED if COMPOSED in operators_of(problem) else problem.family


def planted_rates(problems: Iterable[Problem], seed: int = 0) -> dict[str, float]:
    """Return the share of right answers of each family; 0 for `COMPOSED`.

    Chains get `CHAIN_RATE`: they are learned in training, and nothing is learned if no sampled
    answer is right. Families of single operators get the shares in `RATES`, in a drawn order.
    """
    families = sorted({family_of(problem) for problem in problems} - {COMPOSED})
    random.Random(f"demo/rates/{seed}").shuffle(families)
    chains = [family for family in families if family.startswith("chain")]
    single = [family for family in families if family not in chains]
    dealt = [
        *zip(single, itertools.chain(RATES, itertools.repeat(RATES[-1])), strict=False),
        *((family, CHAIN_RATE) for family in chains),
    ]
    return {**dict(dealt), COMPOSED: 0.0}


def fits(problem: Problem) -> bool:
    """Return True if a right kernel for a problem can be short enough for the model."""
    return any(_short(solve(problem, style_seed=style).source) for style in range(_TRIES))


def evenly(problems: Sequence[Problem], answers: int, most: int = 9) -> tuple[int, ...]:
    """Return each problem's number of answers, so that operators are shown about equally often.

    Args:
        problems: Problems of the warm start.
        answers: Number of answers to all problems. A few less may be returned, but at least one a
            problem.
        most: Largest number of answers to one problem. The rarer a problem's rarest operator is,
            the more answers it gets.
    """
    held = [operators_of(problem) for problem in problems]
    often = Counter(itertools.chain.from_iterable(held))
    rarest = [min(often[operator] for operator in operators) for operators in held]

    def dealt(scale: float) -> tuple[int, ...]:
        return tuple(min(max(1, round(scale / count)), most) for count in rarest)

    low, high = 0.0, float(most * max(rarest, default=1))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if sum(dealt(middle)) > answers else (middle, high)
    return dealt(low)


def some(problems: Sequence[Problem], number: int, seed: int = 0) -> tuple[int, ...]:
    """Return 1 for each problem of a random choice of so many, and 0 for the others."""
    places = range(len(problems))
    drawn = {*random.Random(f"demo/some/{seed}").sample(places, min(number, len(problems)))}
    return tuple(int(place in drawn) for place in places)


def first_answers(
    problems: Sequence[Problem],
    seed: int = 0,
    per_problem: int | Sequence[int] = 6,
    *,
    device: str = "cpu",
) -> tuple[Example, ...]:
    """Return noisy first-turn answers for the warm start: right, broken or cheating.

    Args:
        problems: The warm start's; those that do not fit are left out.
        seed: Seed that decides rates, favourite defects, styles and labels.
        per_problem: Answers for each problem, or for one after the other.
        device: Device that judges: ``cpu``, or a GPU.
    """
    rates = planted_rates(problems, seed)
    rng = random.Random(f"demo/answers/{seed}")
    found = []
    for problem, count in _counted(problems, per_problem):
        rate = rates[family_of(problem)]
        for _ in range(count):
            style = _style(rng, problem)
            if style is None:
                break
            asked = _respelled(rng, problem)
            source, label, expected = _draw(rng, problem, asked, style, rate, seed, device)
            read, answer = question(asked), answer_of(source)
            found.append(Example(problem, read, answer, label, expected))
    return tuple(found)


def repairs(
    problems: Sequence[Problem],
    seed: int = 0,
    per_problem: int | Sequence[int] = 1,
    *,
    device: str = "cpu",
) -> tuple[Example, ...]:
    """Return second-turn answers that repair the defect of a broken first; see `first_answers`."""
    rates = planted_rates(problems, seed)
    rng = random.Random(f"demo/repairs/{seed}")
    found = []
    for problem, count in _counted(problems, per_problem):
        if rates[family_of(problem)] < _REPAIRED_FROM:
            continue
        for _ in range(count):
            style = _style(rng, problem)
            if style is None:
                break
            broken, label, status = _broken(rng, problem, style, seed, device)
            answer = answer_of(broken)
            # Left out is what the judge describes by sizes: a wrong axis gives a wrong shape or
            # wrong values, rows stored without a mask overlap or end beyond the tensor.
            if label == Defect.WRONG_AXIS or _ROWS_STORED.search(answer):
                continue
            said = retry(told(answer, status, device))
            asked = question(_respelled(rng, problem))
            read = (*asked, Message("assistant", answer), said)
            whole = answer_of(_nearest(problem, style, broken))
            found.append(Example(problem, read, whole, "right", Status.CORRECT))
    return tuple(found)


def _counted(
    problems: Sequence[Problem], per_problem: int | Sequence[int]
) -> Iterable[tuple[Problem, int]]:
    counts = [per_problem] * len(problems) if isinstance(per_problem, int) else per_problem
    return zip(problems, counts, strict=True)


def _respelled(rng: random.Random, problem: Problem) -> Problem:
    """Return a problem whose reference writes the same operators in another spelling."""
    return respelled(problem, rng.randrange(1 << 30))


def _draw(
    rng: random.Random,
    problem: Problem,
    asked: Problem,
    style: int,
    rate: float,
    seed: int,
    device: str,
) -> tuple[str, str, Status]:
    """Return (source, label, expected status) of one answer to the problem, spelled as `asked`."""
    drawn = rng.random()
    if drawn < CHEATS / 2:
        return _in_torch(asked), "torch", Status.REJECTED
    if drawn < CHEATS:
        decoy = _decoy(rng, problem, asked, style, seed, device)
        return decoy, "decoy", Status.REJECTED
    if drawn < CHEATS + rate:
        return solve(problem, style_seed=style).source, "right", Status.CORRECT
    if family_of(problem) == COMPOSED:
        return _not_composed(rng, problem, style), "not_composed", Status.WRONG
    return _broken(rng, problem, style, seed, device)


def _broken(
    rng: random.Random, problem: Problem, style: int, seed: int, device: str
) -> tuple[str, str, Status]:
    """Return a broken variant that is short enough; later ones are drawn less often."""
    offered = _variants(problem, style, seed, device)
    place = 0
    while place < len(offered) - 1 and rng.random() >= _FAVOUR:
        place += 1
    found = offered[place]
    return found.kernel.source, found.defect, found.expected


def _variants(problem: Problem, style: int, seed: int, device: str) -> list[BrokenKernel]:
    """Return the broken variants short enough, in the order that the problem's family prefers."""
    unseen = () if device == "cpu" else (Defect.MISSING_MASK,)
    order = [defect.value for defect in Defect]
    random.Random(f"demo/favourite/{seed}/{problem.family}").shuffle(order)
    fitting = [
        v
        for v in broken_variants(problem, "triton", style)
        if v.defect not in unseen and _short(v.kernel.source)
    ]
    return sorted(fitting, key=lambda found: order.index(found.defect))


def _not_composed(rng: random.Random, problem: Problem, style: int) -> str:
    """Return a kernel with a wrong form of the operator `COMPOSED`: another sign or gate."""
    wrong = rng.choice(_NOT_COMPOSED)
    return _RIGHT_FORM.sub(wrong, solve(problem, style_seed=style).source)


def _in_torch(problem: Problem) -> str:
    """Return a cheating answer: the reference itself, renamed to ModelNew."""
    source, _, _ = compact(problem.source).partition("def get_inputs():")
    head, _, body = source.partition("class Model(")
    imports = "".join(line for line in head.splitlines(True) if line.startswith("import"))
    return f"{imports}class ModelNew({body}"


def _decoy(
    rng: random.Random, problem: Problem, asked: Problem, style: int, seed: int, device: str
) -> str:
    """Return a cheat: a wrong kernel runs for show, and PyTorch computes the result.

    A right one would show in disguise what the planted rates keep rare.
    """
    if family_of(problem) == COMPOSED:
        source = _not_composed(rng, problem, style)
    else:
        ran = [v for v in _variants(problem, style, seed, device) if v.expected is Status.WRONG]
        source = ran[0].kernel.source
    head, _, _ = compact(source).rpartition("        return ")
    body = re.search(r"    def forward\(.*\):\n((?:        .*\n)+)", compact(asked.source))
    assert body is not None
    head = re.sub(r"^        out = (?=\w+\([^=]*\)\n\Z)", "        unused = ", head, flags=re.M)
    functional = "import torch.nn.functional as F\n"
    return head.replace("import triton\n", f"{functional}import triton\n", 1) + body[1]


def _nearest(problem: Problem, style: int, broken: str) -> str:
    """Return the right kernel that shares the most lines with a broken one."""
    lines = _stripped(broken)
    # A variant is written in the first style, a thousand apart, that shows its defect.
    sources = (solve(problem, style_seed=style + 1000 * attempt).source for attempt in range(24))
    return min(filter(_short, sources), key=lambda source: len(lines ^ _stripped(source)))


def _stripped(source: str) -> set[str]:
    """Return a module's lines without indentation, which changes where a variant lacks a loop."""
    return {line.strip() for line in source.splitlines()}


def _style(rng: random.Random, problem: Problem) -> int | None:
    """Draw a style in which a right kernel is short enough; None if some tries found none."""
    for _ in range(_TRIES):
        style = rng.randrange(_STYLES)
        if _short(solve(problem, style_seed=style).source):
            return style
    return None


def _short(source: str) -> bool:
    return line_count(source) <= MAX_LINES
