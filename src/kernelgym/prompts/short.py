"""The short prompt: the question, and the last answer with its fault.

Contract: pure text, a tenth of the full prompt's tokens or less. `question` gives the task in one
line and the reference without the imports at its top; it tells neither the rules nor the form of an
answer, so it is for a model that was taught both. `retry` keeps the kind of a failure and the hint,
and drops the figures, so that failures of one kind read the same.

`ShortObserver` shows the last attempt only, whatever else was tried: an episode of many turns reads
like one of two. An attempt that does not fit the budget is not shown, and the question is asked
anew. What parts add follows the question. It shows no worked examples, no hardware and no kernel to
start from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym.errors import UsageError
from kernelgym.languages import language as find_language
from kernelgym.prompts.observer import Observer, Prompt, shrunk, sound
from kernelgym.prompts.parts import UNLIMITED
from kernelgym.types import Feedback, Kernel, Message, Problem, Turn

_AGAIN = "Write it again without the fault."
_FASTER = "Write it again, faster."
_DOC = re.compile(r'^\s*""".*"""$')
_BARE_INIT = re.compile(r"    def __init__\(self\):\n        super\(\)\.__init__\(\)\n(?!        )")
# An import in several lines ends the match: half of one would be left.
_IMPORTS = re.compile(r"\A(?:(?:import|from) [^(\\\n]*\n)+")
_FIRST_CLAUSE = re.compile(r"^(\w+: [^:]+|[^:]+)")
_RIGHT = ("success", "slow")


def bare(source: str) -> str:
    """Return a module without blank lines, one-line docstrings and empty constructors."""
    lines = [line for line in source.splitlines() if line.strip() and not _DOC.match(line)]
    return _BARE_INIT.sub("", "".join(f"{line}\n" for line in lines))


def question(problem: Problem, language: str = "triton") -> tuple[Message, ...]:
    """Return the short prompt's first message: the task in a line, and the reference.

    Raises:
        UnknownName: If there is no such language.
    """
    task = f"Write ModelNew with {find_language(language).title} kernels."
    return (Message("user", f"{task}\n{_IMPORTS.sub('', bare(problem.source))}"),)


def brief(said: Feedback) -> str:
    """Return the kind of failure and the hint in a feedback, without figures.

    Of an error, its type and first clause are kept; of a wrong output, nothing beyond that.
    """
    lines = [said.headline]
    if said.category not in ("numerics", "shape", *_RIGHT):
        clause = _FIRST_CLAUSE.match(said.detail.partition("\n")[0])
        lines += [clause[0].strip()] if clause else []
    return "\n".join([*lines, said.hint])


def retry(said: Feedback) -> Message:
    """Return the short prompt's message after an answer: what failed, and what to do."""
    return Message("user", f"{brief(said)}\n{_FASTER if said.category in _RIGHT else _AGAIN}")


@dataclass(frozen=True, slots=True)
class ShortObserver(Observer):
    """Shows the question, and the last answer with its feedback.

    `examples` and `context` have no effect.

    Raises:
        UsageError: If it is given hardware, which it could not show.
    """

    def __post_init__(self) -> None:
        Observer.__post_init__(self)  # the bare super() does not work in a slotted dataclass
        if self.hardware is not None:
            raise UsageError(
                "the short prompt shows no hardware; leave it out, or use the full prompt "
                "(kernelgym.Observer)"
            )

    def _prompt(
        self, problem: Problem, turns: Sequence[Turn], budget: int | None, start: Kernel | None
    ) -> Prompt:
        """Return the short prompt: the question, texts of parts, and the last attempt.

        Raises:
            UsageError: If there is a kernel to start from, which is not shown, or the question
                exceeds `prompt_tokens`.
        """
        if start is not None:
            raise UsageError(
                "the short prompt shows no kernel to start from; leave it out, or use the full "
                "prompt (kernelgym.Observer)"
            )
        asked = question(problem, self.language)[0].content
        tried: tuple[Message, ...] = ()
        if turns:
            last = turns[-1]
            tried = (sound(Message("assistant", last.action)), sound(retry(last.feedback)))

        def made(part_room: int, tried: tuple[Message, ...]) -> Prompt:
            added = self.additions(problem, turns, part_room)
            texts = [asked, *(addition.text for addition in added)]
            messages = (sound(Message("user", "\n\n".join(texts))), *tried)
            return Prompt(messages, added, self.tokens(messages), self.tokens(tried))

        limit = self.prompt_tokens
        bare = made(0, ())
        if limit is not None and bare.tokens > limit:
            raise UsageError(
                f"the question about {problem.id} takes {bare.tokens} tokens, and "
                f"prompt_tokens={limit}; raise that limit, or leave the problem out"
            )
        room = self.context_tokens if budget is None else budget
        if limit is not None:
            room = min(room, limit - bare.tokens)
        shown = tried if self.tokens(tried) <= room else ()
        if limit is None:
            return made(UNLIMITED, shown)
        left = limit - bare.tokens - self.tokens(shown)
        return shrunk(lambda part_room: made(part_room, shown), left, limit)[0]

    def is_full(
        self,
        problem: Problem,
        turns: Sequence[Turn],
        budget: int | None = None,
        *,
        start: Kernel | None = None,
    ) -> bool:
        """Return False: no turn but the last is shown."""
        del problem, turns, budget, start
        return False
