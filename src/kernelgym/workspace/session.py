"""`ToolSession`: the trusted half of a workspace, which has kernels judged and keeps the account.

Contract:

- a call of ``check``, ``time`` or ``profile`` takes one of the budget's calls and is recorded as a
  turn; ``submit`` takes none, is the last turn, and can be made once;
- every kernel is judged anew, with fresh inputs, also one that was judged before: the score of the
  session is the score of the submission's own verdict;
- the problem, the budget and the verdicts are this object's. A caller gives the name of a tool and
  a kernel's source, and nothing else;
- a call that the judge fails on is neither counted nor recorded;
- the trajectory is appended to its file when the kernel is submitted. A session that is closed
  before that is recorded as cut.

Calls are answered one after the other. How they come in (`kernelgym.workspace.server`,
`kernelgym.workspace.mcp_server`) is not covered here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.answers.python_source import MAX_SOURCE_CHARS
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import episode_record
from kernelgym.errors import UsageError
from kernelgym.evaluators.abilities import Profiles
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.evaluators.counting import CountingEvaluator
from kernelgym.languages import check_language
from kernelgym.records.trajectories import append_record
from kernelgym.serve.refusal import Refusal
from kernelgym.types import Evaluator, Kernel, Problem, Turn, Verdict
from kernelgym.verdict import HOST_BUSY

TOOLS = {
    "check": "Judge whether the kernel is correct. It is not timed.",
    "time": "Judge the kernel, and time it against the reference if it is correct.",
    "profile": "As time, with figures for tuning: where the time goes, registers, bandwidth.",
    "submit": "Hand the kernel in. This is final, possible once, and takes no call of the budget.",
}
"""Descriptions of the tools, by name."""
REWARD = "stage3"
"""Reward preset that scores the calls; its part for speed is 0 where kernels are not timed."""
_RETRY_S = 5.0
_TIMES = 3  # a correct kernel that a busy host left untimed is judged again, up to here


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Answer to one call of a tool."""

    tool: str
    """Name of the tool."""
    status: str
    """Status of the verdict, such as ``correct`` or ``compile_error``."""
    correct: bool
    """Whether every judged call agreed with the reference."""
    speedup: float
    """Speedup over the reference; 0.0 if the kernel was not timed."""
    speedup_low: float
    """Lower end of the speedup's 95 % interval; 0.0 if the kernel was not timed."""
    feedback: str
    """Feedback on the kernel, as a model reads it."""
    calls_left: int
    """Number of calls of check, time and profile that are left."""
    score: float | None = None
    """Score of the submission; None for another tool."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if self.score is not None:
            return f"{self.feedback}\n\nSubmitted: score {self.score:.3f}. The work is over."
        return f"{self.feedback}\n\nCalls left: {self.calls_left}"


class ToolSession:
    """One problem, one budget of calls, one trajectory.

    Args:
        problem: The problem.
        untimed: Evaluator that judges correctness alone.
        timed: Evaluator by the same ruleset and on the same device that times kernels, too; None
            if the device does not time the language.
        language: Language of the kernels.
        budget: Number of calls of check, time and profile.
        record: File to which the trajectory is appended.

    Raises:
        UsageError: If the budget is below 1, the language does not run on the evaluator's device,
            the problem cannot be judged, or the file cannot be written.
    """

    def __init__(
        self,
        problem: Problem,
        untimed: Evaluator,
        timed: Evaluator | None,
        *,
        language: str,
        budget: int,
        record: Path,
    ) -> None:
        if budget < 1:
            raise UsageError(
                f"the budget is the number of calls of check, time and profile, at least 1; got "
                f"{budget}"
            )
        if not record.parent.is_dir():
            raise UsageError(f"there is no folder {str(record.parent)!r} for the trajectory's file")
        if record.is_dir() or not os.access(record if record.exists() else record.parent, os.W_OK):
            raise UsageError(
                f"the trajectory cannot be written to {str(record)!r}; give a file as --record"
            )
        self._env = KernelEnv(
            level=None,
            problems=[problem],
            evaluator=timed or untimed,
            language=language,
            max_turns=budget + 1,
            stop_when="never",
            reward=REWARD,
            examples="zero_shot",
        )
        self._env.reset()
        judges = {"check": untimed, "submit": timed or untimed}
        if timed is not None:
            judges |= {"time": timed, "profile": _with_counters(timed)}
        self._judges = {tool: AwaitedEvaluator(judge) for tool, judge in judges.items()}
        self.budget, self.record = budget, record
        self._called: list[str] = []
        self._is_written = False
        self._one_call = asyncio.Lock()

    @property
    def env(self) -> KernelEnv:
        """Environment whose episode is played, for reading only."""
        return self._env

    @property
    def problem(self) -> Problem:
        """Problem that the session is about."""
        return self._env.problem

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that the device allows."""
        return tuple(tool for tool in TOOLS if tool in self._judges)

    @property
    def calls_left(self) -> int:
        """Number of calls of check, time and profile that are left."""
        return self.budget - sum(tool != "submit" for tool in self._called)

    @property
    def submission(self) -> Turn | None:
        """The turn of the submitted kernel; None before it is submitted."""
        return self._env.episode.turns[-1] if self._called[-1:] == ["submit"] else None

    def calls(self) -> list[dict[str, str]]:
        """Return tool, status and feedback of every call so far, in order."""
        return [
            {"tool": tool, "status": turn.verdict.status.value, "feedback": _sound(turn)}
            for tool, turn in zip(self._called, self._env.episode.turns, strict=True)
        ]

    def state(self) -> dict[str, Any]:
        """Return the problem's id, the circumstances and the account as plain JSON data."""
        submission = self.submission
        return {
            "problem": self.problem.id,
            "language": self._env.language,
            "device": self._env.device,
            "ruleset": self._env.ruleset.label,
            "tools": list(self.tools),
            "budget": self.budget,
            "calls_left": self.calls_left,
            "submitted": submission is not None,
            "score": None if submission is None else submission.score.total,
        }

    async def call(self, tool: str, source: str) -> ToolAnswer:
        """Have a kernel judged and record the turn.

        Args:
            tool: Name of the tool.
            source: Source of the kernel.

        Raises:
            Refusal: If there is no such tool here, the budget is used up, a kernel was submitted
                already, the source is too long, or the judge failed.
        """
        async with self._one_call:
            self._check(tool, source)
            episode = self._env.episode
            kernel = Kernel(source, episode.language)
            action = f"kernelgym-tools {tool}\n\n<KERNEL>\n```python\n{source}\n```\n</KERNEL>\n"
            read = episode.read(action, kernel=kernel)
            verdict = read if isinstance(read, Verdict) else await self._judge(tool, kernel)
            episode.feedback_level = "profile" if tool == "profile" else "standard"
            if tool == "submit":
                episode.max_turns = len(episode.turns) + 1  # the trajectory ends here
            turn = episode.record(action, verdict)
            self._called.append(tool)
            if tool == "submit":
                self._write()
            return ToolAnswer(
                tool,
                verdict.status.value,
                verdict.correct,
                verdict.speedup,
                verdict.speedup_low,
                _sound(turn),
                self.calls_left,
                turn.score.total if tool == "submit" else None,
            )

    def close(self) -> None:
        """Record the calls so far, as cut if nothing was submitted; the evaluators stay open."""
        if self._called and not self._is_written:
            self._write()

    def _check(self, tool: str, source: str) -> None:
        """Refuse a tool call that the session does not allow."""
        if tool not in TOOLS:
            raise Refusal(422, "tool", f"there is no tool {tool!r}; known: {', '.join(self.tools)}")
        if tool not in self._judges:
            title = check_language(self._env.language, self._env.device).title
            raise Refusal(
                422,
                "untimed",
                f"{tool} is not offered: kernels in {title} are not timed on {self._env.device}; "
                f"use {', '.join(self.tools)}",
            )
        if self.submission is not None:
            raise Refusal(
                409,
                "submitted",
                "a kernel was submitted already, which ends the session: no tool "
                "can be called any more",
            )
        if tool != "submit" and self.calls_left <= 0:
            raise Refusal(
                409,
                "budget",
                f"all {self.budget} calls of check, time and profile are used "
                "up; only submit is left",
            )
        if len(source) > MAX_SOURCE_CHARS:
            raise Refusal(
                413,
                "too_large",
                f"the kernel has {len(source)} characters, and {MAX_SOURCE_CHARS} are allowed",
            )

    async def _judge(self, tool: str, kernel: Kernel) -> Verdict:
        """Return a fresh verdict on a kernel."""
        judge = self._judges[tool]
        # A seed of its own, so that no cache of verdicts answers; public seeds cannot be chosen.
        is_fresh = tool == "submit" and self._env.ruleset.secret_seed
        for _ in range(_TIMES):
            try:
                verdict = await judge.evaluate(
                    self.problem, kernel, seed=secrets.token_hex(16) if is_fresh else ""
                )
            except UsageError as error:
                raise Refusal(422, "judge", f"the judge refuses: {error}") from None
            codes = [finding.code for finding in verdict.findings]
            if tool == "check" or verdict.timed or HOST_BUSY not in codes:
                break
        if not verdict.valid:
            raise Refusal(
                503,
                "judge",
                f"the judge failed ({verdict.message}); the call was not counted, try again",
                _RETRY_S,
            )
        return verdict

    def _write(self) -> None:
        self._is_written = True
        append_record(self.record, episode_record(self._env, writer="workspace"))


def _with_counters(timed: Evaluator) -> Evaluator:
    """Return an evaluator that reads hardware counters too, where that is possible."""
    is_gpu = timed.capabilities.device != "cpu"
    return CountingEvaluator(timed) if is_gpu and timed.ability(Profiles) is not None else timed


def _sound(turn: Turn) -> str:
    """Return a turn's feedback without lone surrogates, which JSON's encoders refuse."""
    return str(turn.feedback).encode("utf-8", "replace").decode("utf-8")
