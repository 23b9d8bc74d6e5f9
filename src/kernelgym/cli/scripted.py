"""An agent without a model for Synthetic problems.

Its first kernel is broken on purpose. After any feedback it answers with the correct kernel, except
after a failure of the judge, when it repeats its answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

from kernelgym.errors import UsageError
from kernelgym.types import Feedback, Problem

_HASTY = "One pass over the data should do."
_CAREFUL = "Every element is computed once, and every access stays within bounds."

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


def scripted_agent(
    problem: Problem, language: str, seed: int = 0
) -> Callable[[Feedback | None], str]:
    """Return an agent for a Synthetic problem: a function from feedback to the next answer.

    The first answer holds a broken kernel if there is one, and the last a correct kernel.

    Args:
        problem: The problem.
        language: Language that the suite writes kernels in.
        seed: Seed of the choice of defect and style.

    Raises:
        UsageError: If the suite writes no kernel for the problem in the language.
    """
    from kernelgym.suites.synthetic import Target, broken_variants, solve

    if problem.suite != "Synthetic":
        raise UsageError(
            f"the scripted agent knows kernels for the suite Synthetic only, and {problem.id} is "
            "not one of it; choose a problem such as Synthetic/L1/2, or play yourself"
        )
    target = cast(Target, language)  # the suite refuses others by name
    broken = broken_variants(problem, target, seed)
    drafts = [(random.Random(seed).choice(broken).kernel, _HASTY)] if broken else []
    drafts.append((solve(problem, target, seed), _CAREFUL))
    place = 0

    def answer(feedback: Feedback | None) -> str:
        nonlocal place
        reading = ""
        if feedback is not None:
            reading = f"I was told: {feedback.headline} {_READINGS.get(feedback.category, '')}\n"
            if feedback.category != "infrastructure":
                place = min(place + 1, len(drafts) - 1)
        kernel, thought = drafts[place]
        return (
            f"<think>\n{reading}{thought}\n</think>\n\n"
            f"<KERNEL>\n```python\n{kernel.source}```\n</KERNEL>\n"
        )

    return answer
