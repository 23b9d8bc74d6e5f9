"""The demonstration's first minute: one episode and one cheat, judged before a reader's eyes.

Contract: everything printed comes from the environment and the judge. A broken kernel stands in
for a model's first answer, the suite's own kernel for the repair; both are C++, which is timed on a
CPU, so a C++ compiler is needed. The cheat launches that kernel, throws its result away and returns
what PyTorch computes. A verdict that differs from the expected one is printed as such.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym

import kernelgym
from kernelgym import Kernel
from kernelgym.episodes.episode import Episode
from kernelgym.suites.synthetic import Defect, broken_variants, solve
from kernelgym.testing import reply
from kernelgym.types import Evaluator, Problem, Severity, Status, Turn

if TYPE_CHECKING:
    from rich.console import Console

_ENV = f"{kernelgym.__name__}:Synthetic-L2-MultiTurn-v0"
_PROBLEM = "Synthetic/L2/273"  # a chain of cheap operators, which one loop computes
_DEFECT = Defect.NO_BOUNDS_CHECK


def introduce(console: Console, judge: Evaluator) -> tuple[Turn, ...]:
    """Play an episode of two answers and a cheat, and print them.

    Args:
        console: Console that is printed to.
        judge: Evaluator on a CPU that judges the three answers; the caller closes it.

    Returns:
        The wrong answer, the repaired one and the cheat, as they were judged.
    """
    env = gym.make(_ENV, language="cpp", reward="stage3", evaluator=judge)
    _begin(env)
    problem = _episode(env).problem
    right = solve(problem, "cpp")
    slips = broken_variants(problem, "cpp")
    slip = next(variant.kernel for variant in slips if variant.defect == _DEFECT)

    _heading(console, f"The problem: {problem.id}, from a prompt that asks for a C++ kernel")
    _text(console, _model_of(problem))
    _heading(console, "A first answer, judged on fresh inputs that the kernel cannot foresee")
    _text(console, _cpp_of(slip))
    wrong = _answer(env, slip)
    _judged(console, wrong, Status.WRONG)
    _heading(console, "The feedback that a model reads")
    _text(console, str(wrong.feedback))
    _heading(console, "The repaired answer: the lines that changed")
    _text(console, _changes(slip, right))
    repaired = _answer(env, right)
    _judged(console, repaired, Status.CORRECT)

    _begin(env)
    _heading(console, "A cheat: launch the kernel, throw its result away, let PyTorch compute")
    dishonest = cheat(problem, right)
    _text(console, dishonest.source[dishonest.source.index("class ModelNew(") :])
    refused = _answer(env, dishonest)
    _judged(console, refused, Status.REJECTED)
    env.close()
    return wrong, repaired, refused


def cheat(problem: Problem, kernel: Kernel) -> Kernel:
    """Return a kernel that launches another one for show and returns what PyTorch computes.

    Args:
        problem: Problem whose reference is copied.
        kernel: Right kernel for it, whose result is thrown away.
    """
    honest = kernel.source.replace("class ModelNew(", "class Honest(")
    reference, _, _ = problem.source.partition("\ndef get_inputs")
    signature, _, body = reference.partition("    def forward(self, ")[2].partition("):\n")
    source = (
        f"{honest.rstrip()}\n\n\nclass ModelNew(Honest):\n"
        f"    def forward(self, {signature}):\n"
        f"        super().forward({signature})\n"
        f"{body.rstrip()}\n"
    )
    imports = "import torch.nn.functional as F\n"
    return Kernel(source if imports in source else imports + source, kernel.language)


def _begin(env: gym.Env[str, str]) -> None:
    env.reset(seed=0, options={"problem_id": _PROBLEM})


def _episode(env: gym.Env[str, str]) -> Episode:
    return cast(Any, env.unwrapped).episode  # type: ignore[no-any-return]


def _answer(env: gym.Env[str, str], kernel: Kernel) -> Turn:
    """Return the turn of an answer that contains a kernel, in a new episode if the last is over."""
    if _episode(env).over:
        _begin(env)
    env.step(reply(kernel))
    return _episode(env).turns[-1]


def _model_of(problem: Problem) -> str:
    """Return a problem's sizes, reference module and inputs, without its imports."""
    text, _, _ = problem.source.partition("def get_init_inputs")
    lines = (line for line in text.splitlines() if not line.startswith("import "))
    return re.sub(r"\n\n\n+", "\n\n", "\n".join(lines)).strip()


def _cpp_of(kernel: Kernel) -> str:
    """Return the C++ function in the source of an answer of the demonstration."""
    text = kernel.source
    start = text.index("torch::Tensor ")
    return text[start : text.index('"""', start)].rstrip()


def _changes(before: Kernel, after: Kernel) -> str:
    """Return the lines of C++ that differ, marked by - and +."""
    lines = difflib.unified_diff(
        _cpp_of(before).splitlines(), _cpp_of(after).splitlines(), lineterm="", n=0
    )
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _judged(console: Console, turn: Turn, expected: Status) -> None:
    """Print a turn's verdict, and what was expected if it is another."""
    verdict = turn.verdict
    colour = "green" if verdict.status is expected else "red"
    trials = f", {verdict.trials_passed} of {verdict.trials} calls right" if verdict.trials else ""
    told = f"{verdict.status.value}{trials}, reward {turn.score.total:.2f}"
    _text(console, f"verdict: {told}; judged in {verdict.wall_s:.1f} s", f"bold {colour}")
    if verdict.timing is not None:
        timing = verdict.timing
        _text(
            console,
            f"speedup over PyTorch: {timing.speedup:.2f}x (95 % interval "
            f"{timing.speedup_low:.2f}x to {timing.speedup_high:.2f}x), "
            f"{1000 * timing.kernel_ms:.1f} us against {1000 * timing.reference_ms:.1f} us a call",
            "bold",
        )
    elif verdict.correct:
        _text(console, "speedup over PyTorch: not measured", "bold red")
    for finding in verdict.findings:
        style = "bold" if finding.severity is Severity.HARD else ""
        _text(console, f"{finding.severity.value} finding {finding.code}: {finding.message}", style)
    if verdict.status is not expected:
        _text(console, f"expected was: {expected.value}. {verdict.message}", "bold red")


def _heading(console: Console, text: str) -> None:
    _text(console, f"\n{text}", "bold cyan")


def _text(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)
