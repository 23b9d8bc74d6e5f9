"""Turn loop of every caller: a policy answers, a judge judges, the turn is recorded.

`play_turns` plays one game, `side_by_side` awaits several. A game is what fills `Seat`:
`EpisodeSeat` seats an `Episode` whose prompts an `Observer` writes, `kernelgym.envs.drivers` seats
an environment.

Contract:

- a game waits for its own answers and verdicts and for no other game. The order in which they come
  decides nothing: the same answers and verdicts give the same turns;
- a `PolicyFailure` that the policy raises ends that game ``cut``, and no other game. The failure is
  logged as a warning;
- whatever else a policy or a judge raises ends the play: the other games are cancelled, and the
  caller gets the exception once they are gone;
- a game that ends before its episode does (a wrapper limits the steps) is ``cut`` too, and so is
  one whose append-only context is full.

It does not cover:

- tokens, prompts and seeds: the policy has them;
- retries and batches of verdicts: the judge that is given has them;
- the choice of problems, and files.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import PolicyFailure, UsageError
from kernelgym.prompts.observer import Observer
from kernelgym.types import Kernel, Message, Problem, Trajectory, Verdict

Policy = Callable[[Any], Awaitable[str]]
"""Awaited function that answers an observation: a tuple of `Message`, or a text.

An answer that a limit of tokens cut off is a `kernelgym.types.Answer` with that mark."""

Judge = Callable[[Problem, Kernel], Awaitable[Verdict]]
"""Awaited function that judges one kernel, such as
`kernelgym.evaluators.awaited.AwaitedEvaluator.evaluate`."""

Given = TypeVar("Given")
Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)


class Seat(Protocol):
    """One episode that `play_turns` can play: an `Episode`, or an environment."""

    @property
    def problem(self) -> Problem:
        """The problem that is played."""

    @property
    def over(self) -> bool:
        """True once the episode takes no further answer."""

    @property
    def trajectory(self) -> Trajectory:
        """The turns played so far."""

    def observation(self) -> Any:
        """Return the observation that the policy answers next: messages, or one text."""

    def read(self, answer: str) -> Kernel | None:
        """Return the kernel that must be judged; None if the answer needs no judge."""

    def take(self, answer: str, verdict: Verdict | None) -> None:
        """Record the answer that `read` was given last; None if `read` returned None."""


def history_budget(problem: Problem, observer: Observer, config: EpisodeConfig) -> int:
    """Return the largest number of tokens that earlier attempts may take in a prompt."""
    if config.prompt_tokens is None or observer.prompt_tokens is not None:
        return observer.context_tokens  # a limit of its own is divided at every turn
    first = observer.tokens(observer.observe(problem))
    return max(0, min(observer.context_tokens, config.prompt_tokens - first))


class EpisodeSeat:
    """Seats an episode whose prompts an observer writes.

    Args:
        episode: The episode.
        observer: Observer that writes the messages that the policy reads.
    """

    def __init__(self, episode: Episode, observer: Observer) -> None:
        self.episode = episode
        self._observer = observer
        self._budget = history_budget(episode.problem, observer, episode.config)
        self._found: Verdict | None = None

    @property
    def problem(self) -> Problem:
        """The problem that is played."""
        return self.episode.problem

    @property
    def over(self) -> bool:
        """True once the episode has ended."""
        return self.episode.over

    @property
    def trajectory(self) -> Trajectory:
        """The turns played so far."""
        return self.episode.trajectory

    def observation(self) -> tuple[Message, ...]:
        """Return the messages that the policy answers next."""
        return self._observer.observe(self.problem, self.episode.turns, self._budget)

    def read(self, answer: str) -> Kernel | None:
        """Return the kernel that must be judged; None if its verdict is known."""
        read = self.episode.read(answer)
        self._found = read if isinstance(read, Verdict) else self.episode.known_verdict(read)
        return read if isinstance(read, Kernel) and self._found is None else None

    def take(self, answer: str, verdict: Verdict | None) -> None:
        """Record the last answer; cut an episode whose context is full.

        Raises:
            UsageError: If `read` returned a kernel and there is no verdict.
        """
        found = self._found if verdict is None else verdict
        if found is None:
            raise UsageError("take() needs the verdict of the kernel that read() returned")
        self.episode.record(answer, found)
        turns = self.episode.turns
        if not self.over and self._observer.is_full(self.problem, turns, self._budget):
            self.episode.cut()


async def play_turns(seat: Seat, policy: Policy, judge: Judge) -> Trajectory:
    """Play one game to its end and return its turns.

    Args:
        seat: The game.
        policy: Awaited function that answers an observation.
        judge: Awaited function that judges a kernel.

    Raises:
        Exception: Whatever the policy, but for `PolicyFailure`, or the judge raises; the game is
            then left as it is.
    """
    while not seat.over:
        shown = seat.observation()
        try:
            answer = await policy(shown)
        except PolicyFailure as failure:
            _LOG.warning("cut an episode on %s: the policy failed: %s", seat.problem.id, failure)
            break
        kernel = seat.read(answer)
        seat.take(answer, None if kernel is None else await judge(seat.problem, kernel))
    played = seat.trajectory
    return played if played.ended else dataclasses.replace(played, ended="cut")


async def side_by_side(
    given: Iterable[Given],
    play: Callable[[Given], Coroutine[Any, Any, Result]],
    at_once: int | None = None,
) -> list[Result]:
    """Await `play` for each argument at the same time; return the results in order.

    Args:
        given: Arguments of the calls of `play`, such as games.
        play: Awaited once for each.
        at_once: Largest number that is awaited at the same time; None for all.

    Raises:
        UsageError: If `at_once` is below 1.
        Exception: What `play` raised first. The others are cancelled, and gone by then.
    """
    if at_once is not None and at_once < 1:
        raise UsageError(f"at_once must be at least 1, got {at_once}")
    given = list(given)
    room = asyncio.Semaphore(at_once or max(1, len(given)))

    async def one(each: Given) -> Result:
        async with room:
            return await play(each)

    tasks = [asyncio.create_task(one(each)) for each in given]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
