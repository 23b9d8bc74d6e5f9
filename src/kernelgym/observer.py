"""The text a model reads at each turn: prompt, earlier attempts, feedback.

Contract: `Observer.observe` is a pure function of (problem, turns, budget). Environments and
trainers hold the same observer, so what is added to it is what is trained on. The prompt is
always given in full; the budget is for what was tried before: recent attempts in full with their
feedback, earlier ones in a line each, the oldest dropped first. Thinking is not repeated.

To add something (retrieved examples, notes on hardware), pass a part: a function of problem and
turns that returns text for the first user message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelgym.feedback import cut_middle
from kernelgym.languages import language as find_language
from kernelgym.prompts import Hardware, example_count, problem_prompt, system_prompt
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Kernel, Message, Problem, Turn

__all__ = ["HISTORY_CHARS", "Observer", "Part", "render"]

HISTORY_CHARS = 24_000
"""Default budget for earlier attempts, in characters."""
_LEAST_ATTEMPT_CHARS = 1_000

Part = Callable[[Problem, Sequence[Turn]], str]
"""Adds text to the first user message; an empty string adds nothing."""


@dataclass(frozen=True, slots=True)
class Observer:
    """What a model is shown. Two equal observers show the same."""

    language: str
    device: str
    ruleset: str | Ruleset = "strict"
    max_turns: int = 1
    examples: int | str = "one_shot"
    """Worked examples in the prompt; see `kernelgym.prompts.problem_prompt`."""
    hardware: Hardware | None = None
    parts: tuple[Part, ...] = ()
    recent: int = 2
    """How many attempts are shown in full, if the budget allows."""

    def __post_init__(self) -> None:
        # Faults of the caller show here, not at the first observation.
        find_language(self.language)
        find_ruleset(self.ruleset)
        example_count(self.examples, self.language)

    def observe(
        self,
        problem: Problem,
        turns: Sequence[Turn] = (),
        budget: int = HISTORY_CHARS,
        *,
        start: Kernel | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages for the next answer.

        Args:
            problem: The problem being solved.
            turns: The turns played so far.
            budget: Most characters for earlier attempts, their feedback and the summary. The
                last attempt is shown even beyond it, cut to about 1000 characters.
            start: A kernel to improve on, shown with the prompt.
        """
        prompt = [
            problem_prompt(
                problem,
                self.language,
                self.device,
                examples=self.examples,
                hardware=self.hardware,
                ruleset=self.ruleset,
                max_turns=self.max_turns,
            )
        ]
        prompt += [text for part in self.parts if (text := part(problem, turns))]
        if start is not None:
            prompt.append(
                "# The kernel to start from\n\nIt has not been judged yet. Improve on it.\n\n"
                f"```python\n{start.source.strip()}\n```"
            )
        attempts, shown = self._recent_attempts(turns, budget)
        left = budget - sum(len(message.content) for message in attempts)
        if summary := _summary(turns[: len(turns) - shown], left):
            prompt.append(summary)
        system = Message("system", system_prompt(self.language))
        user = Message("user", "\n\n".join(prompt))
        return tuple(_sound(message) for message in (system, user, *attempts))

    def _recent_attempts(self, turns: Sequence[Turn], budget: int) -> tuple[list[Message], int]:
        """Return the messages of the last attempts that fit, and how many attempts they are."""
        messages: list[Message] = []
        shown = 0
        for turn in reversed(turns[-self.recent :] if self.recent else turns[-1:]):
            told = str(turn.feedback)
            ask = _ask(turn.index + 1, self.max_turns) if not shown else ""
            told = f"# What became of turn {turn.index + 1}\n\n{told}{ask}"
            room = budget - sum(len(message.content) for message in messages) - len(told)
            answer = _answer(turn)
            if len(answer) > room:
                if shown:
                    break
                answer = cut_middle(answer, max(room, _LEAST_ATTEMPT_CHARS))
            messages[:0] = [Message("assistant", answer), Message("user", told)]
            shown += 1
        return messages, shown


def render(messages: Sequence[Message]) -> str:
    """Return messages as one text, for observations that are plain text.

    The system part comes first and once; the model's own answers are marked as such.
    """
    sections = [
        f"# Your answer\n\n{message.content}" if message.role == "assistant" else message.content
        for message in messages
    ]
    return "\n\n".join(sections)


def _answer(turn: Turn) -> str:
    """Return an earlier answer without its thinking."""
    if turn.reply.kernel is None:
        return cut_middle(turn.action, _LEAST_ATTEMPT_CHARS)
    return f"<KERNEL>\n```python\n{turn.reply.kernel.source.rstrip()}\n```\n</KERNEL>"


def _ask(played: int, max_turns: int) -> str:
    left = max_turns - played
    if left <= 0:
        return ""
    return (
        f"\n\nTurns left: {left}. Answer with a complete module again, inside <KERNEL> and "
        "</KERNEL>."
    )


def _summary(turns: Sequence[Turn], room: int) -> str:
    """Return earlier attempts in a line each, the oldest dropped to fit; or an empty string."""
    title = "# Earlier attempts\n"
    lines: list[str] = []
    room -= len(title)
    for turn in reversed(turns):
        line = _line(turn)
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return "\n".join([title, *reversed(lines)]) if lines else ""


def _line(turn: Turn) -> str:
    verdict = turn.verdict
    told = f"- Turn {turn.index + 1}: {verdict.status.value}"
    if verdict.timed:
        return f"{told}, speedup {verdict.speedup:.2f}x"
    first = verdict.message.strip().partition("\n")[0]
    return told + (f": {cut_middle(first, 160)}" if first and not verdict.correct else "")


def _sound(message: Message) -> Message:
    """Return `message` without lone surrogates, which no tokenizer or file can take."""
    if message.content.isascii():
        return message
    sound = message.content.encode("utf-8", "replace").decode("utf-8")
    return message if sound == message.content else Message(message.role, sound)
