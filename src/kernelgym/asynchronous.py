"""Episodes for frameworks that await: an awaitable evaluator, and a driver for many at once.

`play_episode` plays one episode of an environment with a policy that is awaited, `play_episodes`
several side by side. The environment stays an ordinary one, stepped by `step`, with all of its
wrappers: the driver only has the kernel judged beforehand, without blocking the event loop, so
that `step` finds the verdict. The same texts and verdicts give the same turns as in a loop around
`env.step` or `KernelVectorEnv.step`.

`AwaitedEvaluator` lets any evaluator be awaited. Contract:

- kernels that are awaited at the same time are judged together, in one `evaluate_iter`, and each
  awaiting caller goes on as soon as its own verdict is there;
- what the evaluator raises for a kernel reaches the caller that awaits it, and no other; none is
  left waiting;
- a caller that is cancelled disturbs no other; a kernel not yet begun is then not judged;
- it never closes the evaluator it was given.

It decides no order of problems and keeps no results.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, cast

import gymnasium as gym

from kernelgym.envs import KernelEnv
from kernelgym.errors import JudgeError, UnknownName, UsageError
from kernelgym.types import Evaluator, Job, Kernel, Problem, Trajectory, Verdict

__all__ = ["AwaitedEvaluator", "Policy", "play_episode", "play_episodes"]

Policy = Callable[[Any], Awaitable[str]]
"""Gives the next answer to what it is shown: a tuple of `Message`, or a text."""

Game = Problem | gym.Env[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: Job
    verdict: Future[Verdict]


class AwaitedEvaluator:
    """An evaluator that is awaited, and judges together what is awaited at the same time.

    Args:
        evaluator: What judges. It is used from several threads and never closed here.
        most: Most kernels of a batch.
        batches: Most batches that are judged at the same time.

    Raises:
        UsageError: If an argument makes no sense.
    """

    def __init__(self, evaluator: Evaluator, *, most: int = 256, batches: int = 8) -> None:
        if most < 1 or batches < 1:
            raise UsageError(f"most and batches must be at least 1, got {most} and {batches}")
        self.evaluator = evaluator
        self._most, self._batches = most, batches
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._running = 0
        self._closed = False
        self._threads = ThreadPoolExecutor(batches, thread_name_prefix="kernelgym-await")

    async def evaluate(self, problem: Problem, kernel: Kernel) -> Verdict:
        """Judge one kernel.

        Raises:
            UsageError: If this is closed.
            Exception: Whatever the evaluator raises for this kernel.
        """
        waiting = _Waiting(Job(problem, kernel), Future())
        with self._lock:
            if self._closed:
                raise UsageError("this AwaitedEvaluator is closed; make another one")
            self._waiting.append(waiting)
        # Not now, but after every task that is ready had its turn to ask for a verdict as well.
        asyncio.get_running_loop().call_soon(self._dispatch)
        return await asyncio.wrap_future(waiting.verdict)

    async def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many kernels; verdicts in the order of the jobs."""
        return await _all(self.evaluate(job.problem, job.kernel) for job in jobs)

    async def close(self) -> None:
        """Wait for what is being judged; what waits to be is not. The evaluator stays open."""
        with self._lock:
            self._closed = True
            left, self._waiting = self._waiting, []
        _give_up(left)
        await asyncio.to_thread(self._threads.shutdown)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _dispatch(self) -> None:
        """Begin as many batches as there is room for."""
        while True:
            with self._lock:
                if not self._waiting or self._running >= self._batches:
                    return
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                self._running += 1
            try:
                self._threads.submit(self._judge, batch)
            except RuntimeError:  # closed from another thread meanwhile
                _give_up(batch)
                return

    def _judge(self, batch: Sequence[_Waiting]) -> None:
        """Judge a batch, and whatever has come to wait meanwhile; runs in a thread."""
        while batch:
            # From here on a caller that is cancelled no longer takes its kernel back.
            kept = [each for each in batch if each.verdict.set_running_or_notify_cancel()]
            try:
                self._judge_together(kept)
            except BaseException as error:
                for waiting in kept:
                    _settle(waiting, error)
            with self._lock:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                self._running -= not batch

    def _judge_together(self, batch: Sequence[_Waiting]) -> None:
        if len(batch) > 1:
            with contextlib.suppress(Exception):  # whose fault it is, the second try tells
                for index, verdict in self.evaluator.evaluate_iter([each.job for each in batch]):
                    _settle(batch[index], verdict)
        for waiting in batch:
            if not waiting.verdict.done():
                try:
                    job = waiting.job
                    _settle(waiting, self.evaluator.evaluate(job.problem, job.kernel))
                except Exception as error:
                    _settle(waiting, error)


async def play_episode(
    game: Game,
    policy: Policy,
    evaluator: Evaluator | AwaitedEvaluator | None = None,
    *,
    reads: Literal["messages", "text"] = "messages",
    wrap: Callable[[gym.Env[str, str]], gym.Env[str, str]] | None = None,
    seed: int | None = None,
    reset_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Trajectory:
    """Play one episode.

    Args:
        game: A problem, or an environment, which is reset first.
        policy: Gives the answers.
        evaluator: Judges them. With an environment it may be left out; if given, it must have the
            environment's device and ruleset. Several episodes that share an `AwaitedEvaluator`
            are judged together.
        reads: What the policy is given: ``messages``, or the environment's own observation as one
            ``text`` (which is what wrappers around it may change).
        wrap: With a problem: puts wrappers around its environment, such as
            ``lambda env: RecordTrajectories(env, path)``.
        seed: Seed of the reset.
        reset_options: Options of the reset; see `kernelgym.envs.KernelEnv.reset`.
        **options: With a problem: of `kernelgym.envs.KernelEnv`, such as ``max_turns``.

    Returns:
        What was played; cut, if a wrapper of the environment ended it.

    Raises:
        UsageError: If an argument makes no sense.
        Exception: Whatever the policy or the evaluator raises; the episode is then left as it is.
    """
    if reads not in ("messages", "text"):
        raise UnknownName("kind of observation", reads, ("messages", "text"))
    own = isinstance(game, Problem)
    env = _environment(game, evaluator, wrap, options)
    core = cast(KernelEnv, env.unwrapped)
    async with contextlib.AsyncExitStack() as stack:
        if own:
            stack.callback(env.close)
        if isinstance(evaluator, AwaitedEvaluator):
            judge = evaluator
        else:
            # The shared evaluator starts processes when it is first asked for.
            if evaluator is None:
                evaluator = await asyncio.to_thread(_evaluator_of, core)
            judge = await stack.enter_async_context(AwaitedEvaluator(evaluator))
        observation, _ = env.reset(
            seed=seed, options=None if reset_options is None else dict(reset_options)
        )
        over = False
        while not over:
            answer = await policy(core.messages if reads == "messages" else observation)
            if isinstance(answer, str):  # if not, `step` says so
                await _judge_ahead(core, answer, judge)
            observation, _, terminated, truncated, _ = env.step(answer)
            over = terminated or truncated
        played = core.episode.trajectory
        return played if played.ended else dataclasses.replace(played, ended="cut")


async def play_episodes(
    games: Iterable[Game],
    policy: Policy,
    evaluator: Evaluator | AwaitedEvaluator,
    *,
    at_once: int | None = None,
    **options: Any,
) -> list[Trajectory]:
    """Play several episodes side by side; their kernels are judged together.

    Args:
        games: Problems, or environments, each its own.
        policy: Gives the answers; called for several episodes at the same time.
        evaluator: Judges them.
        at_once: Most episodes played at the same time; None for all.
        **options: As for `play_episode`.

    Returns:
        What was played, in the order of the games.

    Raises:
        UsageError: If an argument makes no sense.
        Exception: What the policy or the evaluator raised first; the other episodes are cancelled.
    """
    games = list(games)
    if at_once is not None and at_once < 1:
        raise UsageError(f"at_once must be at least 1, got {at_once}")
    room = asyncio.Semaphore(at_once or max(1, len(games)))
    async with contextlib.AsyncExitStack() as stack:
        judge = evaluator
        if not isinstance(judge, AwaitedEvaluator):
            judge = await stack.enter_async_context(AwaitedEvaluator(judge))

        async def play(game: Game) -> Trajectory:
            async with room:
                return await play_episode(game, policy, judge, **options)

        return await _all(play(game) for game in games)


async def _judge_ahead(env: KernelEnv, answer: str, judge: AwaitedEvaluator) -> None:
    """Get the verdict that `env.step(answer)` will ask for, if it is one for a judge."""
    read = env.begin(answer)  # may be called again, as `step` does
    if isinstance(read, Kernel):
        env.episode.remember(read, await judge.evaluate(env.problem, read))


def _evaluator_of(env: KernelEnv) -> Evaluator:
    return env.evaluator


def _environment(
    game: Game,
    evaluator: Evaluator | AwaitedEvaluator | None,
    wrap: Callable[[gym.Env[str, str]], gym.Env[str, str]] | None,
    options: Mapping[str, Any],
) -> gym.Env[str, str]:
    judge = evaluator.evaluator if isinstance(evaluator, AwaitedEvaluator) else evaluator
    if isinstance(game, Problem):
        env = KernelEnv(level=None, problems=[game], evaluator=judge, **options)
        return env if wrap is None else wrap(env)
    if options or wrap is not None:
        names = ", ".join([*options, *(["wrap"] if wrap else [])])
        raise UsageError(
            f"{names}: not beside an environment, which has its own options and wrappers; give "
            "them to gym.make, or give a problem"
        )
    core = game.unwrapped
    if not isinstance(core, KernelEnv):
        raise UsageError(f"a problem or an environment of kernelgym is played, got {game!r}")
    if judge is not None and (judge.device, judge.ruleset) != (core.device, core.ruleset):
        raise UsageError(
            f"the evaluator judges by {judge.ruleset.label!r} on {judge.device!r}, the environment "
            f"by {core.ruleset.label!r} on {core.device!r}"
        )
    return game


async def _all(awaited: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; if one raises, cancel the others, wait until they are gone, and raise it."""
    tasks = [asyncio.create_task(each) for each in awaited]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _settle(waiting: _Waiting, outcome: Verdict | BaseException) -> None:
    """Give a caller its verdict or its error, unless it has one."""
    if waiting.verdict.done():
        return
    if isinstance(outcome, StopIteration | CancelledError | asyncio.CancelledError):
        # A future does not take these; as they are, the caller would wait for ever.
        error = JudgeError(f"the evaluator raised {type(outcome).__name__}")
        error.__cause__ = outcome
        outcome = error
    if isinstance(outcome, BaseException):
        waiting.verdict.set_exception(outcome)
    else:
        waiting.verdict.set_result(outcome)


def _give_up(left: Iterable[_Waiting]) -> None:
    for waiting in left:
        if waiting.verdict.set_running_or_notify_cancel():
            _settle(waiting, JudgeError("the evaluator was closed before this kernel was judged"))
