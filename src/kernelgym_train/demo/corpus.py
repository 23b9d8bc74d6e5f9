"""The warm start's answers: noisy on purpose, by a rate of right ones planted in each family.

Contract: a function of problems and seed. Every answer carries its label. A family is the suite's,
but whatever holds `COMPOSED` is a family of its own: its right form never occurs, though all of its
parts do. A family's wrong answers prefer one defect, so that below a half the likeliest answer is
wrong. Defects are those that the suite says show on the problem: an access
without a mask where the sizes are no multiple of the block, a forgotten loop where a row is longer
than one. About a tenth of the answers compute in PyTorch, half of them behind a (wrong) kernel
whose result is thrown away.

`repairs` are second turns: a broken kernel, the feedback that its label gets, and the same kernel
without the defect. A wrong axis is left out, since its label decides no feedback. They are of
families with enough right answers, or they would teach the others.

The same problem is asked in many spellings (`torch.mul(x, y)`, `x * y`): there are few problems to
learn from. Labels are the suite's word; nothing is judged here. They hold on the CPU. On a GPU an
access without a mask that hits nothing goes unnoticed, so that defect is left out, and what is told
of a name that does not exist is what Triton's compiler says.
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
"""Shares of right answers, dealt to the families of single operators; see `planted_rates`."""
CHAIN_RATE = 0.36
"""The same of families of chains."""
CHEATS = 0.10
"""Share of answers that compute in PyTorch."""
MAX_LINES = 32
"""Most lines of an answer's module."""

_STYLES = 48
_TRIES = 16
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
    """One answer of the warm start, and what the model reads before it."""

    problem: Problem
    messages: tuple[Message, ...]
    answer: str
    label: str
    """``right``, a `kernelgym.suites.synthetic.Defect`, ``not_composed``, ``torch``, ``decoy``."""
    expected: Status
    """The verdict it gets on the device it was written for, under the ruleset ``strict``."""


def family_of(problem: Problem) -> str:
    """Return the family whose rate a problem has."""
    return COMPOSED if COMPOSED in operators_of(problem) else problem.family


def planted_rates(problems: Iterable[Problem], seed: int = 0) -> dict[str, float]:
    """Deal the rates to the families that occur; `COMPOSED` gets none right.

    Chains get `CHAIN_RATE`: they are what is learned, and nothing is learned from a reward that
    never comes. Single operators get all of `RATES`.
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
    """Return whether a right kernel for a problem can be short enough."""
    return any(_short(solve(problem, style_seed=style).source) for style in range(_TRIES))


def evenly(problems: Sequence[Problem], answers: int, most: int = 9) -> tuple[int, ...]:
    """Return how many answers each problem gets, so that operators are shown about equally often.

    Args:
        problems: The warm start's.
        answers: Of all problems. As many are dealt, or a few less; one to each if that is more.
        most: For one problem. It gets the more, the fewer problems hold its rarest operator.
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
    """Return 1 for each of so many problems, which are drawn at random, and 0 for the others."""
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
    """Return first-turn answers.

    Args:
        problems: The warm start's; those that do not fit are left out.
        seed: Decides rates, favourite defects, styles and labels.
        per_problem: Answers for each problem, or for one after the other.
        device: What judges: ``cpu``, or a GPU.
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
    """Return second-turn answers that take away the defect of the first; see `first_answers`."""
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
            if label == Defect.WRONG_AXIS:
                continue  # the label leaves open whether shape or values are complained of
            said = retry(told(answer_of(broken), status, device))
            asked = question(_respelled(rng, problem))
            read = (*asked, Message("assistant", answer_of(broken)), said)
            whole = answer_of(_nearest(problem, style, broken))
            found.append(Example(problem, read, whole, "right", Status.CORRECT))
    return tuple(found)


def _counted(
    problems: Sequence[Problem], per_problem: int | Sequence[int]
) -> Iterable[tuple[Problem, int]]:
    counts = [per_problem] * len(problems) if isinstance(per_problem, int) else per_problem
    return zip(problems, counts, strict=True)


def _respelled(rng: random.Random, problem: Problem) -> Problem:
    """Return a problem whose reference spells the same operators another way."""
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
    """Return (source, label, expected) of one answer; what is asked is a spelling of `problem`."""
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
    """Return a variant that fits; the further behind in the order, the rarer."""
    offered = _variants(problem, style, seed, device)
    place = 0
    while place < len(offered) - 1 and rng.random() >= _FAVOUR:
        place += 1
    found = offered[place]
    return found.kernel.source, found.defect, found.expected


def _variants(problem: Problem, style: int, seed: int, device: str) -> list[BrokenKernel]:
    """Return the variants that fit, in the order that the problem's family prefers."""
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
    """Return a kernel with something near `COMPOSED` in its place: another sign or gate."""
    wrong = rng.choice(_NOT_COMPOSED)
    return _RIGHT_FORM.sub(wrong, solve(problem, style_seed=style).source)


def _in_torch(problem: Problem) -> str:
    """Return the reference under the name of the answer."""
    source, _, _ = compact(problem.source).partition("def get_inputs():")
    head, _, body = source.partition("class Model(")
    imports = "".join(line for line in head.splitlines(True) if line.startswith("import"))
    return f"{imports}class ModelNew({body}"


def _decoy(
    rng: random.Random, problem: Problem, asked: Problem, style: int, seed: int, device: str
) -> str:
    """Return a kernel that runs, wrong as it is, and the reference's computation as the result.

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
    """Return the right kernel that shares most lines with a broken one."""
    lines = _stripped(broken)
    # A variant is written in the first style, a thousand apart, that shows its defect.
    sources = (solve(problem, style_seed=style + 1000 * attempt).source for attempt in range(24))
    return min(filter(_short, sources), key=lambda source: len(lines ^ _stripped(source)))


def _stripped(source: str) -> set[str]:
    """Return a module's lines without their depth, which a forgotten loop changes."""
    return {line.strip() for line in source.splitlines()}


def _style(rng: random.Random, problem: Problem) -> int | None:
    """Draw a style in which a right kernel is short enough; None if there seems to be none."""
    for _ in range(_TRIES):
        style = rng.randrange(_STYLES)
        if _short(solve(problem, style_seed=style).source):
            return style
    return None


def _short(source: str) -> bool:
    return line_count(source) <= MAX_LINES
