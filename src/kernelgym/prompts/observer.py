"""The text a model reads at each turn: prompt, earlier attempts, feedback.

Contract: `Observer.observe` is a pure function of (problem, turns, budget). Environments and
trainers hold the same observer, so what is added to it is what is trained on. The prompt is always
given in full; the budget, in tokens, is for what was tried before. What that is a context policy
decides (`kernelgym.prompts.context`); where it does not fit, older attempts are shown in less
detail, then in a line, then not at all, and the best one is the last to go.

To add something (retrieved examples, notes on hardware), pass a part: a function of problem and
turns that returns text for the first user message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelgym.errors import UsageError
from kernelgym.languages import language as find_language
from kernelgym.prompts.context import (
    ContextPolicy,
    Detail,
    Shown,
    best_turn,
    context_policy,
    own_summary,
)
from kernelgym.prompts.problem import (
    SUMMARY_REQUEST,
    Hardware,
    example_count,
    problem_prompt,
    system_prompt,
)
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.tokens import TokenCounter, check_counter, estimate_tokens, fit
from kernelgym.types import Kernel, Message, Problem, Turn

__all__ = ["HISTORY_TOKENS", "Observer", "Part", "render", "sound"]

HISTORY_TOKENS = 6_000
"""Default budget for earlier attempts."""
_LEAST_ATTEMPT_TOKENS = 250
_SUMMARY_TOKENS = 100

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
    """Worked examples in the prompt; see `kernelgym.prompts.problem.problem_prompt`."""
    hardware: Hardware | None = None
    parts: tuple[Part, ...] = ()
    context: str | ContextPolicy = "recent"
    """What is shown of earlier turns: a name from `CONTEXTS`, or a policy."""
    context_tokens: int = HISTORY_TOKENS
    """Most tokens for that."""
    count: TokenCounter = estimate_tokens
    """Counts tokens; four characters each if not given."""

    def __post_init__(self) -> None:
        # Faults of the caller show here, not at the first observation.
        find_language(self.language)
        find_ruleset(self.ruleset)
        example_count(self.examples, self.language)
        context_policy(self.context)
        check_counter(self.count)
        if isinstance(self.context_tokens, bool) or not isinstance(self.context_tokens, int):
            raise UsageError(f"context_tokens is a number of tokens, got {self.context_tokens!r}")
        if self.context_tokens < 0:
            raise UsageError(
                f"context_tokens must be at least 0, got {self.context_tokens}; 0 shows no earlier "
                "turn but the last, cut short"
            )
        if self.hardware is not None and not isinstance(self.hardware, Hardware):
            raise UsageError(
                f"hardware is a kernelgym.prompts.problem.Hardware, got {self.hardware!r}; give "
                "Hardware(name='NVIDIA H100') with what else the prompt should tell, or leave the "
                "option out"
            )

    def observe(
        self,
        problem: Problem,
        turns: Sequence[Turn] = (),
        budget: int | None = None,
        *,
        start: Kernel | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages for the next answer.

        Args:
            problem: The problem being solved.
            turns: The turns played so far.
            budget: Most tokens for earlier attempts, their feedback and the summary;
                `context_tokens` if None. The last attempt is shown even beyond it, cut to about
                250 tokens, and so is its feedback.
            start: A kernel to improve on, shown with the prompt.
        """
        policy = context_policy(self.context)
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
        if policy.asks_summary and self.max_turns > 1:
            prompt.append(SUMMARY_REQUEST)
        prompt += [text for part in self.parts if (text := part(problem, turns))]
        if start is not None:
            prompt.append(
                "# The kernel to start from\n\nIt has not been judged yet. Improve on it.\n\n"
                f"```python\n{start.source.strip()}\n```"
            )
        room = self.context_tokens if budget is None else budget
        attempts, lines = self._history(turns, policy.choose(turns), room)
        if lines:
            prompt.append(lines)
        system = Message("system", system_prompt(self.language))
        user = Message("user", "\n\n".join(prompt))
        return tuple(sound(message) for message in (system, user, *attempts))

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages, without what a chat template puts between them."""
        return sum(self.count(message.content) for message in messages)

    def _history(
        self, turns: Sequence[Turn], chosen: Sequence[Shown], room: int
    ) -> tuple[list[Message], str]:
        """Return the messages of the attempts that fit, and the lines of others that fit."""
        if not turns:
            return [], ""
        last, best = len(turns) - 1, best_turn(turns)
        wanted = {last: Shown(last, Detail.KERNEL)} | {shown.index: shown for shown in chosen}
        # The last attempt first, then the best where it is shown, then the newest.
        order = sorted(wanted, key=lambda index: (index != last, index != best, -index))
        found: dict[int, list[Message]] = {}
        full = False
        for index in order:
            detail = wanted[index].detail
            if index != last and (detail is Detail.LINE or (full and index != best)):
                continue
            told = self._told(turns[index], index == last, index == best != last)
            answer = self._attempt(turns[index], detail, room - self.count(told))
            if answer is None and index == last:
                least = max(room - self.count(told), _LEAST_ATTEMPT_TOKENS)
                answer = fit(_kernel(turns[index]), least, self.count)
            if answer is None:
                full = True  # an older one that is shorter is not shown instead
                continue
            found[index] = [Message("assistant", answer), Message("user", told)]
            room -= self.count(answer) + self.count(told)
        left = [
            turns[index]
            for index in sorted(wanted.keys() - found.keys())
            if wanted[index].detail is Detail.LINE or wanted[index].or_line
        ]
        messages = [message for index in sorted(found) for message in found[index]]
        return messages, self._lines(left, room)

    def _attempt(self, turn: Turn, detail: Detail, room: int) -> str | None:
        """Return an earlier answer in as much detail as fits, from `detail` down; or None."""
        for less in (Detail.WHOLE, Detail.SUMMARY, Detail.KERNEL):
            if less <= max(detail, Detail.KERNEL):
                answer = self._answer(turn, less)
                if self.count(answer) <= room:
                    return answer
        return None

    def _answer(self, turn: Turn, detail: Detail) -> str:
        if detail is Detail.WHOLE:
            return turn.action
        kernel = _kernel(turn)
        if turn.reply.kernel is None:
            return fit(kernel, _LEAST_ATTEMPT_TOKENS, self.count)
        summary = own_summary(turn) if detail is Detail.SUMMARY else ""
        if not summary:
            return kernel
        return f"<SUMMARY>\n{fit(summary, _SUMMARY_TOKENS, self.count)}\n</SUMMARY>\n\n{kernel}"

    def _told(self, turn: Turn, is_last: bool, is_best: bool) -> str:
        asked = _ask(turn.index + 1, self.max_turns) if is_last else ""
        best = ", the best so far" if is_best else ""
        return f"# What became of turn {turn.index + 1}{best}\n\n{turn.feedback}{asked}"

    def _lines(self, turns: Sequence[Turn], room: int) -> str:
        """Return attempts in a line each, the oldest dropped to fit; or an empty string."""
        title = "# Earlier attempts\n"
        lines: list[str] = []
        room -= self.count(title) + 1
        for turn in reversed(turns):
            line = _line(turn)
            room -= self.count(f"{line}\n")
            if room < 0:
                break
            lines.append(line)
        return "\n".join([title, *reversed(lines)]) if lines else ""


def render(messages: Sequence[Message]) -> str:
    """Return messages as one text, for observations that are plain text.

    The system part comes first and once; the model's own answers are marked as such.
    """
    sections = [
        f"# Your answer\n\n{message.content}" if message.role == "assistant" else message.content
        for message in messages
    ]
    return "\n\n".join(sections)


def _kernel(turn: Turn) -> str:
    """Return an earlier answer without its thinking."""
    if turn.reply.kernel is None:
        return turn.action
    return f"<KERNEL>\n```python\n{turn.reply.kernel.source.rstrip()}\n```\n</KERNEL>"


def _ask(played: int, max_turns: int) -> str:
    left = max_turns - played
    if left <= 0:
        return ""
    return (
        f"\n\nTurns left: {left}. Answer with a complete module again, inside <KERNEL> and "
        "</KERNEL>."
    )


def _line(turn: Turn) -> str:
    verdict = turn.verdict
    told = f"- Turn {turn.index + 1}: {verdict.status.value}"
    if verdict.timed:
        return f"{told}, speedup {verdict.speedup:.2f}x"
    return f"{told}: {turn.feedback.gist}" if turn.feedback.gist else told


def sound(message: Message) -> Message:
    """Return `message` without lone surrogates, which no tokenizer or file can take."""
    if message.content.isascii():
        return message
    sound = message.content.encode("utf-8", "replace").decode("utf-8")
    return message if sound == message.content else Message(message.role, sound)
