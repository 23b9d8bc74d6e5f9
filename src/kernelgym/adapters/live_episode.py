"""`LiveEpisode`: one episode that a framework's own loop plays, answer by answer.

`EpisodeFactory` makes them: environments of the same settings that share a judge. Contract:

- settings are those of `gym.make`, and plain data suffices: an evaluator can be an address;
- `context` is ``transcript`` if it is not given, so that a framework can append `LiveEpisode.news`
  to the conversation that it keeps;
- an answer whose kernel could not be judged, through no fault of the kernel, raises `JudgeError`.
  An adapter turns this into its framework's word for "play it anew" or "leave it out", never into
  a reward;
- the same answers get the same turns, scores and verdicts as under `kernelgym.play_episode`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym

from kernelgym.envs.drivers import step_async
from kernelgym.envs.infos import as_json
from kernelgym.envs.kernel_env import KernelEnv, StepResult
from kernelgym.errors import JudgeError, UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.suites import suite as find_suite
from kernelgym.types import Answer, Kernel, Message, Problem, Trajectory, Verdict


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """Result of one answer: its score, and the message that the model reads next."""

    reward: float
    """Score of the turn."""
    over: bool
    """True if the episode takes no further answer."""
    truncated: bool
    """True if something outside the episode ended it, such as a context that is full."""
    news: str
    """Message that the model reads next: feedback on its answer and what is asked; at the end of
    the episode the feedback alone."""
    info: dict[str, Any]
    """Info of the step as plain data; see `kernelgym.envs.infos.as_json`."""


class LiveEpisode:
    """One episode, played once.

    Args:
        env: The environment, already reset.
        info: Info of that reset.
    """

    def __init__(self, env: KernelEnv, info: Mapping[str, Any]) -> None:
        self.env = env
        self.start_info = as_json(info)

    @property
    def problem(self) -> Problem:
        """The problem that is played."""
        return self.env.problem

    @property
    def messages(self) -> tuple[Message, ...]:
        """Conversation that the model reads for its next answer."""
        return self.env.messages

    @property
    def is_append_only(self) -> bool:
        """Whether each prompt is the one before, the answer to it, and one new user message."""
        return self.env.observer.is_append_only

    @property
    def trajectory(self) -> Trajectory:
        """The turns played so far."""
        return self.env.episode.trajectory

    def copy(self) -> LiveEpisode:
        """Return a copy of the episode at its present turn, without judging a kernel again."""
        env = self.env.sibling(borrows=True)
        env.reset(options={"problem_id": self.problem.id, "allow_degenerate": True})
        twin = LiveEpisode(env, self.start_info)
        for turn in self.trajectory.turns:
            if turn.reply.kernel is not None:
                env.episode.remember(turn.reply.kernel, turn.verdict)
            twin.answer_now(turn.action, "cut_off" in turn.reply.defects)
        return twin

    async def answer(self, text: str, cut_off: bool = False) -> AnswerResult:
        """Take an answer, await its verdict, and return its score and the next message.

        Args:
            text: The model's text.
            cut_off: Whether sampling stopped at a limit of tokens.

        Raises:
            JudgeError: If the kernel could not be judged; the episode must be dropped.
            ResetNeeded: If the episode is over.
        """
        return self._result(await step_async(self.env, text, self._judge, cut_off))

    def answer_now(self, text: str, cut_off: bool = False) -> AnswerResult:
        """Take an answer as `answer` does, blocking the calling thread until it is judged.

        Raises:
            JudgeError: If the kernel could not be judged; the episode must be dropped.
            ResetNeeded: If the episode is over.
        """
        return self._result(self.env.step(Answer(text, cut_off=True) if cut_off else text))

    async def _judge(self, problem: Problem, kernel: Kernel) -> Verdict:
        return await AwaitedEvaluator(self.env.evaluator).evaluate(problem, kernel)

    def _result(self, stepped: StepResult) -> AnswerResult:
        _, reward, terminated, truncated, info = stepped
        turn = self.env.episode.turns[-1]
        if not info["valid"]:
            why = turn.verdict.message or "a correct kernel was not timed"
            raise JudgeError(
                f"turn {turn.index + 1} on {self.problem.id} has no score, through no fault of the "
                f"kernel: {why}; play the episode again or leave it out"
            )
        over = terminated or truncated
        appended = not over and self.is_append_only
        news = self.env.news.content if appended else str(turn.feedback)
        return AnswerResult(reward, over, truncated, news, as_json(info))


class EpisodeFactory:
    """Makes episodes of the same settings, which share one judge.

    Threads may share it. The judge ends with the process, or with `close`.

    Args:
        env_id: Id of the environment, such as ``Synthetic-L1-MultiTurn``.
        **options: Options of `gym.make`; ``context`` is ``transcript`` if it is not given.

    Raises:
        UsageError: If an option is unknown or cannot be used.
    """

    def __init__(self, env_id: str, **options: Any) -> None:
        self._made_of = env_id, options
        made = gym.make(env_id, **({"context": "transcript"} | options))
        self._first = cast(KernelEnv, made.unwrapped)
        self._lock = threading.Lock()
        atexit.register(self.close)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems that can be played."""
        return self._first.drawn

    @functools.cached_property
    def splits(self) -> dict[str, tuple[Problem, ...]]:
        """Problems of each split of their suite, as far as they are played; ``all`` has them all.

        A suite that has no name, such as a folder of files, has no other split.
        """
        played = {problem.id: problem for problem in self.problems}
        found = {"all": tuple(played.values())}
        with contextlib.suppress(UnknownName):
            suite = find_suite(self.problems[0].suite)
            for name in suite.splits:
                ids = (problem.id for problem in suite.problems(split=name))
                found[name] = tuple(played[each] for each in ids if each in played)
        return found

    def split(self, name: str) -> tuple[Problem, ...]:
        """Return the problems of a split.

        Raises:
            UnknownName: If there is no such split.
        """
        if name not in self.splits:
            raise UnknownName("split", name, self.splits)
        return self.splits[name]

    @property
    def max_turns(self) -> int:
        """Largest number of answers of an episode."""
        return self._first.max_turns

    def changed(self, **options: Any) -> EpisodeFactory:
        """Return a factory with other options over those of this one."""
        env_id, own = self._made_of
        return EpisodeFactory(env_id, **(own | options))

    def check_append_only(self, framework: str) -> None:
        """Refuse conversations whose earlier messages change, which a framework cannot take back.

        Raises:
            UsageError: If `context` rewrites earlier messages.
        """
        if not self._first.observer.is_append_only:
            raise UsageError(
                f"{framework} keeps the conversation and appends to it, and "
                f"context={self._made_of[1].get('context')!r} rewrites earlier messages: leave it "
                "out, or give context='transcript'"
            )

    def first_messages(self, problem: Problem) -> tuple[Message, ...]:
        """Return what the model reads first of a problem."""
        return self._first.observer.observe(problem)

    def begin(self, problem_id: str | int | None = None, seed: int | None = None) -> LiveEpisode:
        """Return a new episode.

        The first call may start the judge's processes.

        Args:
            problem_id: Problem to play; None to draw one.
            seed: Seed of the draw.

        Raises:
            UsageError: If there is no such problem, or it cannot be played.
        """
        with self._lock:
            env = self._first.sibling(borrows=True)
        options = None if problem_id is None else {"problem_id": problem_id}
        _, info = env.reset(seed=seed, options=options)
        return LiveEpisode(env, info)

    async def begin_async(
        self, problem_id: str | int | None = None, seed: int | None = None
    ) -> LiveEpisode:
        """Return a new episode as `begin` does, without blocking the event loop."""
        return await asyncio.to_thread(self.begin, problem_id, seed)

    def close(self) -> None:
        """End the judge, unless it was given as an object."""
        atexit.unregister(self.close)
        self._first.close()
