"""Messages that a model reads at each turn: prompt, earlier attempts, feedback.

Contract: `Observer.observe` is a pure function of (problem, turns, budget). Environments and
trainers hold the same observer, so what is added to it is what is trained on. The problem is always
given in full; the budget, in tokens, is for what was tried before. What that is a context policy
decides (`kernelgym.prompts.context`); where it does not fit, older attempts are shown in less
detail, then in a line, then not at all, and the best one is the last to go.

To add something (retrieved examples, notes on hardware), pass a part (`kernelgym.prompts.parts`).

A context that is append-only (``transcript``) cuts nothing: `observe` shows the first turns that
fit, whole, and `Observer.is_full` says that the last does not, which ends the episode.

With `Observer.prompt_tokens` no prompt is longer than that. It is divided at every turn: the
problem whole, then the last attempt with its feedback, then what parts add, then older attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from kernelgym.prompts.first_message import (
    SUMMARY_REQUEST,
    example_count,
    problem_prompt,
    system_prompt,
)
from kernelgym.prompts.hardware import Hardware, hardware_of
from kernelgym.prompts.parts import UNLIMITED, Addition, Part, Room, add_parts
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.tokens import TokenCounter, check_counter, estimate_tokens, fit
from kernelgym.types import Kernel, Message, Problem, Turn

HISTORY_TOKENS = 6_000
"""Default largest number of tokens of earlier attempts in a prompt."""
_LEAST_ATTEMPT_TOKENS = 250
_SUMMARY_TOKENS = 100


@dataclass(frozen=True, slots=True)
class Observer:
    """Settings of the prompts, and the prompts that follow from them.

    Two equal observers write equal prompts.

    Raises:
        UsageError: If a setting is unknown or out of range.
    """

    language: str
    """Language that the model is asked to write kernels in."""
    device: str
    """Device that kernels run on, such as ``cuda:0``."""
    ruleset: str | Ruleset = "strict"
    """Ruleset that the prompt describes, or its name."""
    max_turns: int = 1
    """Number of answers that an episode allows, which the prompt tells."""
    examples: int | str = "one_shot"
    """Worked examples in the prompt; see `kernelgym.prompts.first_message.problem_prompt`."""
    hardware: Hardware | Mapping[str, Any] | str | None = None
    """Facts about the device that the prompt tells: a `Hardware`, a mapping of its fields, or the
    name of a GPU; None to tell none."""
    parts: tuple[Part, ...] = ()
    """Functions that add text to the first user message, such as retrieved examples."""
    context: str | ContextPolicy | Mapping[str, Any] = "recent"
    """Policy that chooses what is shown of earlier turns: its name in `CONTEXTS`, itself, or a
    mapping of the fields of a `Context`."""
    context_tokens: int = HISTORY_TOKENS
    """Largest number of tokens that earlier turns may take."""
    count: TokenCounter = estimate_tokens
    """Counter of tokens; it takes four characters for one by default."""
    prompt_tokens: int | None = None
    """Largest number of tokens of the whole prompt, without what a chat template adds; None for no
    limit."""

    def __post_init__(self) -> None:
        # Faults of the caller show here, not at the first observation.
        find_language(self.language)
        find_ruleset(self.ruleset)
        example_count(self.examples, self.language)
        policy = context_policy(self.context)
        check_counter(self.count)
        if isinstance(self.context_tokens, bool) or not isinstance(self.context_tokens, int):
            raise UsageError(f"context_tokens is a number of tokens, got {self.context_tokens!r}")
        if self.context_tokens < 0:
            raise UsageError(
                f"context_tokens must be at least 0, got {self.context_tokens}; 0 shows no earlier "
                "turn but the last, cut short"
            )
        limit = self.prompt_tokens
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise UsageError(f"prompt_tokens is a number of tokens or None, got {limit!r}")
        if limit is not None and limit < 1:
            raise UsageError(f"prompt_tokens must be at least 1, got {limit}; None sets no limit")
        # A specification that went through JSON holds mappings in the place of dataclasses.
        object.__setattr__(self, "hardware", hardware_of(self.hardware))
        if isinstance(self.context, Mapping):
            object.__setattr__(self, "context", policy)

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
            budget: Largest number of tokens of earlier attempts, their feedback and the summary;
                `context_tokens` if None. The last attempt is shown even beyond it, cut to about
                250 tokens, and so is its feedback.
            start: A kernel to improve on, shown with the prompt.

        Raises:
            UsageError: If the problem and the least of an attempt exceed `prompt_tokens`.
        """
        return self._prompt(problem, turns, budget, start).messages

    def retrieved(
        self,
        problem: Problem,
        turns: Sequence[Turn] = (),
        budget: int | None = None,
        *,
        start: Kernel | None = None,
    ) -> tuple[tuple[str, ...], int]:
        """Return the ids of the index entries that `observe` shows, and their number of tokens."""
        if not self.parts:
            return (), 0
        added = self._prompt(problem, turns, budget, start).added
        ids = tuple(entry for addition in added for entry in addition.entries)
        return ids, sum(addition.tokens for addition in added if addition.entries)

    def is_full(
        self,
        problem: Problem,
        turns: Sequence[Turn],
        budget: int | None = None,
        *,
        start: Kernel | None = None,
    ) -> bool:
        """Return True if an append-only context lacks room for a turn.

        The episode is cut then. Arguments are those of `observe`.
        """
        if not turns or not self.is_append_only:
            return False
        return len(self._prompt(problem, turns, budget, start).messages) < 2 * len(turns) + 2

    @property
    def is_append_only(self) -> bool:
        """Whether each prompt is the one before, the answer to it, and one new user message."""
        return bool(getattr(context_policy(self.context), "append_only", False))

    def _transcript(
        self, problem: Problem, turns: Sequence[Turn], room: int, start: Kernel | None
    ) -> Prompt:
        """Return the prompt that shows the first turns that fit, whole."""
        before, after = self._fixed(problem, start)
        limit = self.prompt_tokens
        system = Message("system", self._system())

        def opening(added: Sequence[Addition]) -> tuple[Message, ...]:
            texts = [*before, *(addition.text for addition in added), *after]
            return sound(system), sound(Message("user", "\n\n".join(texts)))

        def additions(part_room: int) -> tuple[Addition, ...]:
            # What parts show must not depend on the turns: it stands before them.
            return self.additions(problem, (), part_room)

        least = self.tokens(opening(()))
        if limit is not None and least + 2 * _LEAST_ATTEMPT_TOKENS * (self.max_turns > 1) > limit:
            raise UsageError(
                f"the prompt for {problem.id} needs {least} tokens, with the least of an attempt "
                f"and its feedback beside it, and prompt_tokens={limit}; raise it, show fewer "
                "examples, or leave the problem out"
            )
        part_room = UNLIMITED if limit is None else limit - least - 2 * _LEAST_ATTEMPT_TOKENS
        added = additions(part_room)
        while limit is not None and part_room > 0 and self.tokens(opening(added)) > limit:
            part_room -= max(1, self.tokens(opening(added)) - limit)
            added = additions(part_room)
        opened = opening(added)
        shown = Prompt(opened, added, self.tokens(opened), 0)
        for turn in turns:
            told, asked = self._told(turn, is_last=True, is_best=False)
            pair = (
                sound(Message("assistant", turn.action)),
                sound(Message("user", f"{told}{asked}")),
            )
            tokens = self.tokens(pair)
            over = limit is not None and shown.tokens + tokens > limit
            if over or shown.attempts + tokens > room:
                break
            shown = Prompt(
                shown.messages + pair, added, shown.tokens + tokens, shown.attempts + tokens
            )
        return shown

    def _prompt(
        self, problem: Problem, turns: Sequence[Turn], budget: int | None, start: Kernel | None
    ) -> Prompt:
        """Return the prompt; its parts share the room if it has a limit."""
        room = self.context_tokens if budget is None else budget
        if self.is_append_only:
            return self._transcript(problem, turns, room, start)
        before, after = self._fixed(problem, start)

        def made(
            part_room: int, last_room: int, history_room: int, chosen: Sequence[Shown]
        ) -> Prompt:
            added = self.additions(problem, turns, part_room)
            attempts, lines = self._history(turns, chosen, last_room, history_room)
            texts = [*before, *(addition.text for addition in added), *after]
            user = Message("user", "\n\n".join([*texts, lines] if lines else texts))
            system = Message("system", self._system())
            messages = tuple(sound(message) for message in (system, user, *attempts))
            return Prompt(messages, added, self.tokens(messages), self.tokens(messages[2:]))

        chosen = context_policy(self.context).choose(turns)
        limit = self.prompt_tokens
        if limit is None:
            return made(UNLIMITED, room, room, chosen)
        own = [shown for shown in chosen if shown.index == len(turns) - 1]
        bare = made(0, 0, 0, own)
        least = bare.tokens
        if not turns and self.max_turns > 1:
            least += 2 * _LEAST_ATTEMPT_TOKENS
        if least > limit:
            raise UsageError(
                f"the prompt for {problem.id} needs {least} tokens, with the least of an attempt "
                f"and its feedback, and prompt_tokens={limit}; raise it, show fewer examples, or "
                "leave the problem out"
            )
        # What attempts take already is part of the room: one without slack is right at once.
        last, last_room = shrunk(
            lambda r: made(0, r, r, own), min(room, bare.attempts + limit - bare.tokens), limit
        )
        with_parts, part_room = shrunk(
            lambda r: made(r, last_room, last_room, own), limit - last.tokens, limit
        )
        whole, _ = shrunk(
            lambda r: made(part_room, last_room, r, chosen),
            min(room, with_parts.attempts + limit - with_parts.tokens),
            limit,
        )
        return whole if whole.tokens <= limit else with_parts

    def _system(self) -> str:
        """Return the system message's text."""
        return system_prompt(self.language)

    def _fixed(self, problem: Problem, start: Kernel | None) -> tuple[list[str], list[str]]:
        """Return the texts of the first user message that come before parts, and after them."""
        before = [
            problem_prompt(
                problem,
                self.language,
                self.device,
                examples=self.examples,
                hardware=hardware_of(self.hardware),
                ruleset=self.ruleset,
                max_turns=self.max_turns,
            )
        ]
        if context_policy(self.context).asks_summary and self.max_turns > 1:
            before.append(SUMMARY_REQUEST)
        if start is None:
            return before, []
        return before, [
            "# The kernel to start from\n\nIt has not been judged yet. Improve on it.\n\n"
            f"```python\n{start.source.strip()}\n```"
        ]

    def additions(self, problem: Problem, turns: Sequence[Turn], room: int) -> tuple[Addition, ...]:
        """Return the texts that parts add to the first user message, in at most `room` tokens."""
        place = Room(self.language, self.device, room, self.count)
        return add_parts(self.parts, problem, turns, place)

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the number of tokens of messages, without those that a chat template adds."""
        return sum(self.count(message.content) for message in messages)

    def _history(
        self,
        turns: Sequence[Turn],
        chosen: Sequence[Shown],
        last_room: int,
        room: int,
    ) -> tuple[list[Message], str]:
        """Return the messages of earlier attempts that fit, and one-line texts of the others.

        The last attempt is cut to `last_room`; what it takes counts in `room`, as others do.
        """
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
            head, asked = self._told(turns[index], index == last, index == best != last)
            told = f"{head}{asked}"
            here = last_room if index == last else room
            if self.prompt_tokens is not None:
                most = max(here - _LEAST_ATTEMPT_TOKENS, _LEAST_ATTEMPT_TOKENS)
                told = fit(told, most, self.count)
            answer = self._attempt(turns[index], detail, here - self.count(told))
            if answer is None and index == last:
                least = max(here - self.count(told), _LEAST_ATTEMPT_TOKENS)
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
        """Return an earlier answer in as much detail as fits; None if no detail fits."""
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

    def _told(self, turn: Turn, is_last: bool, is_best: bool) -> tuple[str, str]:
        """Return the message on a turn's outcome, with the request for the next answer."""
        asked = _ask(turn.index + 1, self.max_turns) if is_last else ""
        best = ", the best so far" if is_best else ""
        return f"# What became of turn {turn.index + 1}{best}\n\n{turn.feedback}", asked

    def _lines(self, turns: Sequence[Turn], room: int) -> str:
        """Return one line for each attempt, the oldest dropped until they fit."""
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, the texts that parts added to it, and its numbers of tokens."""

    messages: tuple[Message, ...]
    added: tuple[Addition, ...]
    tokens: int
    attempts: int
    """Number of tokens of attempts that are shown in full; one-line attempts belong to the first
    message."""


def shrunk(make: Callable[[int], Prompt], room: int, limit: int) -> tuple[Prompt, int]:
    """Return a prompt within the limit, and the number of tokens left.

    Tokens of joined texts are not the sum of theirs for every tokenizer: what is too long is made
    again with less room.
    """
    room = max(room, 0)
    made = make(room)
    while made.tokens > limit and room > 0:
        room = max(0, room - max(1, made.tokens - limit))
        made = make(room)
    return made, room


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
    """Return an earlier answer for the prompt, with its kernel and without its thinking."""
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
    """Return a message without lone surrogates, which no tokenizer or file can take."""
    if message.content.isascii():
        return message
    sound = message.content.encode("utf-8", "replace").decode("utf-8")
    return message if sound == message.content else Message(message.role, sound)
