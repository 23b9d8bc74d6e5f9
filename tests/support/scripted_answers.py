"""Answers of a scripted model for whole episodes, and what `play_episode` makes of them.

Each case is a problem of its own: a wrong kernel and then a right one; a text without a kernel; an
answer that a limit cut off; kernels that stay wrong; a request that the model's server fails once.
What is answered follows from the conversation alone, so every framework's loop is answered alike.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelgym import play_episodes
from kernelgym.suites import suite
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply
from kernelgym.types import Answer, Kernel, Message, Problem, Trajectory

ENV = "Synthetic-L1-MultiTurn"
TURNS = 3


def says(verdict: str, number: int = 1) -> str:
    """Return an answer whose kernel a scripted evaluator judges as it says."""
    source = f"{SAMPLE_KERNELS['triton'].source}# {number}\n# verdict: {verdict}\n"
    return reply(Kernel(source, "triton"))


CASES: Mapping[str, Sequence[str]] = {
    "wrong_then_right": (says("wrong"), says("correct 1.5")),
    "malformed": ("I would rather not write a kernel.", says("correct 2.0")),
    "cut_off": (Answer(says("wrong"), cut_off=True), Answer("<KERNEL> imp", cut_off=True), "?"),
    "never_right": tuple(says("wrong", number) for number in range(TURNS)),
    "server_fails_once": (says("compile_error"), says("correct")),
}
"""Answers of each case, by turn."""

_PROBLEMS = suite("Synthetic").problems(level=1)
PROBLEMS: Mapping[str, Problem] = dict(zip(CASES, _PROBLEMS, strict=False))
"""Problem of each case."""
NUMBERS = f"1-{len(CASES)}"
"""The same as the option ``problems`` of the environment."""
OPTIONS: Mapping[str, Any] = {"max_turns": TURNS, "language": "triton", "problems": NUMBERS}
"""Options of the environment, plain data."""


def content(message: Any) -> tuple[str, str]:
    """Return role and text of a message, whatever class it has."""
    if isinstance(message, Mapping):
        role, said = message["role"], message["content"]
    else:
        role, said = message.role, message.content
    if not isinstance(said, str):
        said = "".join(part["text"] for part in said)
    return str(role), said


@dataclass
class ScriptedModel:
    """A model that answers by `CASES`."""

    failures: Counter[str] = field(default_factory=Counter)
    """Requests that failed, by case."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Answers in place of those of the cases, by case."""

    def answer(self, messages: Sequence[Any]) -> Answer:
        """Return the answer to a conversation."""
        said = [content(message) for message in messages]
        case = _case("\n".join(text for role, text in said if role == "user"))
        turn = sum(role == "assistant" for role, _ in said)
        text = self.instead.get(case) or CASES[case][turn]
        return Answer(text, cut_off=isinstance(text, Answer) and text.cut_off)

    def reply(self, body: Mapping[str, Any]) -> Any:
        """Answer a request of `support.chat_server`; the first of one case fails."""
        messages = body["messages"]
        case = _case("\n".join(content(message)[1] for message in messages))
        if case == "server_fails_once" and not self.failures[case]:
            self.failures[case] += 1
            return 500, {"error": {"message": "oops", "type": "error", "code": None}}
        answer = self.answer(messages)
        reason = "length" if answer.cut_off else "stop"
        return {"role": "assistant", "content": str(answer), "finish_reason": reason}


def _case(text: str) -> str:
    """Return the case whose problem a text shows, as it is or as a string of JSON."""
    sources = {case: problem.source.strip() for case, problem in PROBLEMS.items()}
    shown = [case for case, one in sources.items() if one in text or json.dumps(one)[1:-1] in text]
    (found,) = shown
    return found


def expected(*, marks_cut_off: bool = True) -> dict[str, Trajectory]:
    """Return what `play_episode` plays, by the problem's id.

    Args:
        marks_cut_off: Whether answers that a limit cut off are played as such; False for a
            framework that does not tell.
    """
    model = ScriptedModel()

    async def policy(messages: tuple[Message, ...]) -> str:
        answer = model.answer(messages)
        return answer if marks_cut_off else str(answer)

    options = {"max_turns": TURNS, "language": "triton", "context": "transcript"}
    games = list(PROBLEMS.values())
    played = asyncio.run(play_episodes(games, policy, ScriptedEvaluator(), **options))
    return {trajectory.problem.id: trajectory for trajectory in played}


def essentials(trajectory: Trajectory) -> list[tuple[str, float]]:
    """Return status and score of each turn."""
    return [(str(turn.verdict.status), turn.score.total) for turn in trajectory.turns]
