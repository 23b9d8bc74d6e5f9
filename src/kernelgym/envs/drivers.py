"""Episodes for frameworks that await: environments, played by the loop of `episodes.playing`.

`play_episode` plays one episode of an environment with a policy that is awaited, `play_episodes`
several side by side; `step_async` takes one step, for frameworks whose own loop asks the model.
Contract:

- the environment stays an ordinary one, stepped by `step`, with all of its wrappers. The kernel is
  judged before the step, without blocking the event loop, so that `step` finds the verdict;
- the same texts and verdicts give the same turns as a loop around `env.step` or
  `KernelVectorEnv.step`;
- how failures of policy and evaluator end a play: see `kernelgym.episodes.playing`.

It does not cover the order of problems, and keeps no results.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

import gymnasium as gym

from kernelgym.envs.kernel_env import KernelEnv, StepResult
from kernelgym.episodes.playing import Judge, Policy, play_turns, side_by_side
from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.types import Answer, Evaluator, Kernel, Problem, Trajectory, Verdict

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
        policy: Awaited function that answers an observation.
        evaluator: Evaluator of the kernels. With an environment it may be left out; if given, it
            must have the environment's device and ruleset. Several episodes that share an
            `AwaitedEvaluator` are judged together.
        reads: Kind of observation that the policy is given: ``messages``, or the environment's own
            observation as one ``text`` (which is what wrappers around it may change).
        wrap: With a problem: function that puts wrappers around its environment, such as
            ``lambda env: RecordTrajectories(env, path)``.
        seed: Seed of the reset.
        reset_options: Options of the reset; see `kernelgym.envs.kernel_env.KernelEnv.reset`.
        **options: With a problem: of `kernelgym.envs.kernel_env.KernelEnv`, such as ``max_turns``.

    Returns:
        What was played; ``cut`` if a wrapper of the environment ended it, or the policy raised
        `PolicyFailure`.

    Raises:
        UsageError: If an argument makes no sense.
        Exception: Whatever else the policy or the evaluator raises; the episode is then left as
            it is.
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
                evaluator = await asyncio.to_thread(lambda: core.evaluator)
            judge = await stack.enter_async_context(AwaitedEvaluator(evaluator))
        observation, _ = env.reset(
            seed=seed, options=None if reset_options is None else dict(reset_options)
        )
        seat = _EnvSeat(env, core, None if reads == "messages" else observation)
        return await play_turns(seat, policy, judge.evaluate)


async def step_async(
    env: gym.Env[str, str],
    answer: str,
    judge: Judge | AwaitedEvaluator,
    cut_off: bool = False,
) -> StepResult:
    """Take one step of an environment that was reset, awaiting the verdict.

    Steps of several environments that share a judge are judged together.

    Args:
        env: The environment, with its wrappers.
        answer: The model's text.
        judge: Evaluator, or awaited function of a problem and a kernel.
        cut_off: Whether sampling stopped at a limit of tokens before the model ended its answer.

    Returns:
        Observation, reward, terminated, truncated and info, as `step` returns them.

    Raises:
        InvalidAction: If `answer` is not a string.
        ResetNeeded: If the episode is over, or none was begun.
        Exception: What the judge raises. No turn is recorded then: the step may be taken again.
    """
    core = _core(env)
    seat = _EnvSeat(env, core, None)
    asks = judge.evaluate if isinstance(judge, AwaitedEvaluator) else judge
    if cut_off and isinstance(answer, str):
        answer = Answer(answer, cut_off=True)
    kernel = seat.read(answer)
    return seat.step(answer, None if kernel is None else await asks(core.problem, kernel))


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
        policy: Awaited function that answers an observation; it is called for several episodes at
            the same time.
        evaluator: Evaluator of all kernels.
        at_once: Largest number of episodes played at the same time; None for all.
        **options: Further options of `play_episode`.

    Returns:
        What was played, in the order of the games.

    Raises:
        UsageError: If an argument makes no sense.
        Exception: What the policy (but for `PolicyFailure`) or the evaluator raised first; the
            other episodes are cancelled.
    """
    async with contextlib.AsyncExitStack() as stack:
        judge = evaluator
        if not isinstance(judge, AwaitedEvaluator):
            judge = await stack.enter_async_context(AwaitedEvaluator(judge))

        async def play(game: Game) -> Trajectory:
            return await play_episode(game, policy, judge, **options)

        return await side_by_side(games, play, at_once)


class _EnvSeat:
    """Seats an environment that was reset.

    Args:
        env: The environment, with its wrappers.
        core: The environment without its wrappers.
        text: The reset's observation if the policy reads texts; None if it reads messages.
    """

    def __init__(self, env: gym.Env[str, str], core: KernelEnv, text: str | None) -> None:
        self._env, self._core, self._text = env, core, text
        self._kernel: Kernel | None = None
        self.over = False

    @property
    def problem(self) -> Problem:
        return self._core.problem

    @property
    def trajectory(self) -> Trajectory:
        return self._core.episode.trajectory

    def observation(self) -> Any:
        return self._core.messages if self._text is None else self._text

    def read(self, answer: str) -> Kernel | None:
        self._kernel = None
        # A wrapper may take actions that are no text; if none does, `step` raises InvalidAction.
        if isinstance(answer, str):
            read = self._core.begin(answer)  # `step` calls it once more
            self._kernel = read if isinstance(read, Kernel) else None
        return self._kernel

    def take(self, answer: str, verdict: Verdict | None) -> None:
        shown, _, terminated, truncated, _ = self.step(answer, verdict)
        self._text = None if self._text is None else shown
        self.over = terminated or truncated

    def step(self, answer: str, verdict: Verdict | None) -> StepResult:
        """Step the environment, whose evaluator is not asked for what was judged already."""
        if self._kernel is not None and verdict is not None:
            self._core.episode.remember(self._kernel, verdict)
        return cast(StepResult, self._env.step(answer))


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
            f"{names}: an environment has its own options and wrappers and "
            "takes no others here; give "
            "them to gym.make, or give a problem"
        )
    core = _core(game)
    can = None if judge is None else judge.capabilities
    if can is not None and (can.device, can.ruleset) != (core.device, core.ruleset):
        raise UsageError(
            f"the evaluator judges by {can.ruleset.label!r} on {can.device!r}, the environment "
            f"by {core.ruleset.label!r} on {core.device!r}"
        )
    return game


def _core(env: gym.Env[str, str]) -> KernelEnv:
    """Return the kernelgym environment inside of wrappers."""
    core = getattr(env, "unwrapped", None)
    if not isinstance(core, KernelEnv):
        raise UsageError(f"games are problems or environments of kernelgym, got {env!r}")
    return core
