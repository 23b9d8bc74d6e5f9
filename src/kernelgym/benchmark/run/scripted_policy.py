"""The scripted policy: right, wrong and cheating answers, without a model.

Right and wrong kernels are those that the suite Synthetic writes for its own problems. A cheating
answer is the reference under the name ``ModelNew``, without a custom kernel, which ruleset strict
refuses. The seed of the request decides the answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, cast

from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.benchmark.run.policies import EvalPolicy
from kernelgym.errors import UsageError
from kernelgym.types import Kernel, Problem

_SHARES = (0.5, 0.3, 0.2)
_MODEL = re.compile(r"\bModel\b")


class ScriptedPolicy(EvalPolicy):
    """Policy that answers with the kernels that the suite Synthetic writes.

    Args:
        shares: Shares of right, wrong and cheating answers; they sum to 1.
        language: Language that the suite writes kernels in.

    Raises:
        UsageError: If a share is negative, or they do not sum to 1.
    """

    def __init__(
        self, shares: tuple[float, float, float] = _SHARES, language: str = "triton"
    ) -> None:
        if len(shares) != 3 or min(shares) < 0.0 or abs(sum(shares) - 1.0) > 1e-6:
            raise UsageError(
                "shares of right, wrong and cheating answers are at least 0 and sum to 1, as in "
                f"0.5 0.3 0.2; got {' '.join(f'{share:g}' for share in shares)}"
            )
        self._shares, self._language = tuple(shares), language

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers."""
        return {"kind": "scripted", "model": "scripted", "shares": list(self._shares)}

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer.

        Raises:
            UsageError: If the problem is not one of the suite Synthetic.
        """
        if asked.problem.suite != "Synthetic":
            raise UsageError(
                "the scripted policy knows kernels for the suite Synthetic only, and "
                f"{asked.problem.id} is not one of it; give --suite Synthetic, or another --policy"
            )
        chance = random.Random(asked.seed)
        kind = chance.choices(("right", "wrong", "cheating"), self._shares)[0]
        thought, kernel = _kernel(kind, asked.problem, self._language, chance.randrange(1 << 16))
        text = (
            f"<think>\n{thought}\n</think>\n\n<KERNEL>\n```python\n{kernel.source}```\n</KERNEL>\n"
        )
        return Generation(text, model="scripted", usd=0.0)


def _kernel(kind: str, problem: Problem, language: str, seed: int) -> tuple[str, Kernel]:
    """Return the thought and the kernel of an answer of the scripted policy."""
    from kernelgym.suites.synthetic import Target, broken_variants, solve

    target = cast(Target, language)  # the suite refuses others by name
    if kind == "cheating":
        source = _MODEL.sub("ModelNew", problem.source)
        return "The reference is right already: I hand it in as it is.", Kernel(source, language)
    if kind == "wrong" and (broken := broken_variants(problem, target, seed)):
        chosen = broken[seed % len(broken)]
        return "One pass over the data should do.", chosen.kernel
    return "Each element is computed once, within bounds.", solve(problem, target, seed)


def make(target: str, options: PolicyOptions) -> ScriptedPolicy:
    """Return the policy for ``--policy scripted``.

    Raises:
        UsageError: If it is given a target, or an option that it has no use for.
    """
    if target:
        raise UsageError(f"policy 'scripted' takes no target, got {target!r}")
    options.refuse_others("scripted", "shares")
    return ScriptedPolicy(options.shares or _SHARES, options.language)
