"""Episodes for frameworks that await: an awaitable evaluator, and a driver for many at once.

`play_episode` plays one episode of an environment with a policy that is awaited, `play_episodes`
several side by side. The environment stays an ordinary one, stepped by `step`, with all of its
wrappers: the driver only has the kernel judged beforehand, without blocking the event loop, so
that `step` finds the verdict. The same texts and verdicts give the same turns as in a loop around
`env.step` or `KernelVectorEnv.step`.

It decides no order of problems and keeps no results.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, cast

import gymnasium as gym

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator, all_of
from kernelgym.types import Evaluator, Kernel, Problem, Trajectory

__all__ = ["Policy", "play_episode", "play_episodes"]

Policy = Callable[[Any], Awaitable[str]]
"""Gives the next answer to what it is shown: a tuple of `Message`, or a text."""

Game = Problem | gym.Env[str, str]


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
        reset_options: Options of the reset; see `kernelgym.envs.kernel_env.KernelEnv.reset`.
        **options: With a problem: of `kernelgym.envs.kernel_env.KernelEnv`, such as ``max_turns``.

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

        return await all_of(play(game) for game in games)


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
