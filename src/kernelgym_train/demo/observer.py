"""What the demonstration's model reads in an episode: `kernelgym_train.demo.dialogue`'s texts.

Contract: a `kernelgym.Observer`, so the rollout loop, the log and evaluation take it like any
other; what it shows at the first turn is `question`, and later the question, the last answer and
what became of it (`retry`), whatever else was tried. That is what the warm start showed: episodes
may have more turns than it, and each reads like a second one.

An answer whose feedback does not fit the budget is not shown: the question is asked anew, as if
nothing had been tried. Examples and context policies of the base class have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym.prompts.observer import Observer
from kernelgym.types import Kernel, Message, Problem, Turn
from kernelgym_train.demo.dialogue import question, retry

__all__ = ["DialogueObserver"]


@dataclass(frozen=True, slots=True)
class DialogueObserver(Observer):
    """Shows the question, and of what was tried the last answer with its feedback."""

    def observe(
        self,
        problem: Problem,
        turns: Sequence[Turn] = (),
        budget: int | None = None,
        *,
        start: Kernel | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages for the next answer; `start` is not looked at."""
        asked = question(problem)
        if not turns:
            return asked
        last = turns[-1]
        tried = (Message("assistant", last.action), retry(last.feedback))
        room = self.context_tokens if budget is None else budget
        return (*asked, *tried) if self.tokens(tried) <= room else asked
