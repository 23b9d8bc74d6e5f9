"""An agent without a model: it hands in drafts, and lets the feedback say when to go on.

Its first draft is broken on purpose. After each feedback it reads the category: a fault makes it
hand in the next draft, a slow kernel too if there is one, a failure of the judge makes it repeat
itself. It knows kernels for Synthetic problems; for others, the drafts are given to it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from kernelgym.errors import UsageError
from kernelgym.types import Feedback, Kernel, Problem

__all__ = ["Draft", "ScriptedAgent", "scripted_agent", "synthetic_drafts"]

_READINGS = {
    "compile": "It did not build: I look at the first error and mend that.",
    "runtime": "It failed while running: a name, an index or a mask is wrong.",
    "memory": "It used too much memory.",
    "timeout": "It did not end.",
    "numerics": "It runs, but the numbers are off: a constant, an axis or an edge is wrong.",
    "shape": "The output has the wrong shape.",
    "dtype": "The output has the wrong type.",
    "policy": "That is not allowed; I do it in a kernel of my own.",
    "format": "My answer could not be read; I write it out in the form that was asked for.",
    "slow": "It is right but slow; I try to move less memory and use both cores.",
    "success": "It is right; I see whether it can be faster.",
    "infrastructure": "The judge failed, not my kernel; I hand in the same again.",
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A kernel, and what the agent thinks of it."""

    kernel: Kernel
    thought: str


class ScriptedAgent:
    """Plays one episode from a list of drafts.

    Args:
        drafts: What to hand in, at least one; the last should be right.
    """

    def __init__(self, drafts: Sequence[Draft]) -> None:
        if not drafts:
            raise UsageError("a scripted agent needs at least one draft")
        self.drafts = tuple(drafts)
        self._next = 0

    def answer(self, feedback: Feedback | None = None) -> str:
        """Return the next answer.

        Args:
            feedback: What became of the last one; None at the first turn.
        """
        reading = ""
        if feedback is not None:
            reading = f"I was told: {feedback.headline} {_READINGS.get(feedback.category, '')}\n"
            if feedback.category != "infrastructure":
                self._next = min(self._next + 1, len(self.drafts) - 1)
        draft = self.drafts[self._next]
        return (
            f"<think>\n{reading}{draft.thought}\n</think>\n\n"
            f"<KERNEL>\n```python\n{draft.kernel.source}```\n</KERNEL>\n"
        )


def synthetic_drafts(problem: Problem, language: str, seed: int = 0) -> tuple[Draft, ...]:
    """Return a broken and a correct kernel for a Synthetic problem.

    Args:
        problem: The problem.
        language: ``triton`` or ``cpp``.
        seed: Chooses the defect and the style.

    Raises:
        UsageError: If the problem or the language is not one that the suite writes kernels for.
    """
    from kernelgym.suites.synthetic import broken_variants, solve

    target = cast(Literal["triton", "cpp"], language)  # others are refused by name below
    broken = broken_variants(problem, target, seed)
    right = Draft(
        solve(problem, target, seed),
        "Every element is computed once, and every access stays within bounds.",
    )
    if not broken:
        return (right,)
    chosen = random.Random(seed).choice(broken)
    return Draft(chosen.kernel, "One pass over the data should do."), right


def scripted_agent(problem: Problem, language: str, seed: int = 0) -> ScriptedAgent:
    """Return an agent for a problem.

    Raises:
        UsageError: If it knows no kernel for it.
    """
    if problem.suite != "Synthetic":
        raise UsageError(
            f"the scripted agent knows kernels for the suite Synthetic only, and {problem.id} is "
            "not one of it; choose a problem such as Synthetic/L1/2, or play yourself"
        )
    return ScriptedAgent(synthetic_drafts(problem, language, seed))
