"""Plays episodes with a policy that samples tokens, and returns rollouts.

The turn loop is `kernelgym.episodes.playing`'s; this module adds keys, seeds and tokens. Contract:

- each trajectory proceeds on its own: it asks the policy, has the answer judged, and asks again,
  without waiting for another trajectory. A policy that answers in batches (`BatchPolicy`) is the
  exception: it is called once all live trajectories wait, with their requests in the order of keys;
- turns are `kernelgym.episodes.episode.Episode`'s, the text is the observer's, verdicts come
  together through `kernelgym.evaluators.awaited.AwaitedEvaluator`. The same answers and verdicts
  give the same turns as in an environment;
- a failure of the evaluator costs the trajectory its verdict (`unavailable`, so it ends ``cut`` and
  `Trajectory.valid` is false) and costs no other trajectory anything. A `UsageError` of the
  evaluator ends the play;
- a `PolicyFailure` that the policy raises ends the trajectories it was asked for, ``cut``: the one
  of a `Policy`'s request, all those of a `BatchPolicy`'s call. A `PromptTooLong` ends only those
  that it names, and the call is made again for the others. They keep the turns played before, and
  count nowhere (`kernelgym_train.credit.credit.counts`). Any other exception of a policy ends
  the play;
- an answer that ran into the limit of new tokens has the defect ``cut_off``;
- the seed of a request is a function of the run's seed and the request's key.

It does not cover advantages and files, and closes nothing that it was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from kernelgym import UsageError
from kernelgym.benchmark.run.generations import request_seed
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.episodes.playing import EpisodeSeat, play_turns, side_by_side
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.prompts.observer import Observer
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import (
    Answer,
    Evaluator,
    Message,
    Problem,
)
from kernelgym_train.types import Completion, Key, PromptTooLong, Rollout, SampleRequest


@runtime_checkable
class Policy(Protocol):
    """Policy that answers requests as they come; several calls may be awaited at the same time.

    It raises `kernelgym.PolicyFailure` for a request that alone cannot be answered. `sample` may be
    an asynchronous generator; it is closed once its answers are no longer waited for.
    """

    def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield (index of the request, its completion), in any order."""


@runtime_checkable
class BatchPolicy(Protocol):
    """Policy that answers many requests in one call, as a model in this process does."""

    def generate(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        """Return one completion per request, in their order."""


AwaitedAnswer: TypeAlias = "tuple[SampleRequest, asyncio.Future[Completion]]"
"""A request to a policy, and the future of its completion."""


@dataclass(frozen=True, slots=True)
class Task:
    """A trajectory to play: its key and its problem."""

    key: Key
    """Key of the first turn."""
    problem: Problem
    """Problem of the trajectory."""


def tasks_of(
    step: int, problems: Sequence[Problem], trajectories: int, *, first: int = 0
) -> list[Task]:
    """Return the trajectories to play in a step: a number of them for each problem.

    Args:
        step: The training step.
        problems: Problem of each group; two groups may have the same problem.
        trajectories: Number of trajectories of a group.
        first: Number of the first of these groups in the step.
    """
    return [
        Task(Key(step, place, number), problem)
        for place, problem in enumerate(problems, first)
        for number in range(trajectories)
    ]


async def play(
    tasks: Iterable[Task],
    policy: Policy | BatchPolicy,
    evaluator: Evaluator | AwaitedEvaluator,
    observer: Observer,
    rules: EpisodeConfig | None = None,
    *,
    seed: int | str = 0,
    at_once: int | None = None,
) -> list[Rollout]:
    """Play trajectories side by side.

    Args:
        tasks: Trajectories to play; their keys differ.
        policy: Policy that answers.
        evaluator: Evaluator of the answers' kernels.
        observer: Observer that writes the prompts; its language, device, ruleset and number of
            turns are those of the episodes.
        rules: Rules by which episodes are scored and end.
        seed: The run's seed; see `request_seed`.
        at_once: Maximum number of trajectories played at the same time; None for all. Ignored with
            a `BatchPolicy`, which gets the requests of all trajectories in one call.

    Returns:
        One rollout per task, in the order of the tasks.

    Raises:
        UsageError: If an argument is invalid, or the evaluator refuses a kernel because of an error
            of the caller.
        Exception: Any exception of the policy other than `kernelgym.PolicyFailure`.
    """
    tasks = list(tasks)
    rules = EpisodeConfig() if rules is None else rules
    if len({task.key for task in tasks}) < len(tasks):
        raise UsageError("two tasks have the same key; number the trajectories of a group")
    if at_once is not None and at_once < 1:
        raise UsageError(f"at_once must be at least 1, got {at_once}")
    if isinstance(policy, BatchPolicy):
        ask: _Asked = _Barrier(policy, len(tasks))
        at_once = None
    elif isinstance(policy, Policy):
        ask = _Stream(policy)
    else:
        raise UsageError(
            f"a policy has a method sample(requests) or generate(requests); got {policy!r}"
        )
    shared = isinstance(evaluator, AwaitedEvaluator)
    judge = evaluator if isinstance(evaluator, AwaitedEvaluator) else AwaitedEvaluator(evaluator)
    _agree(judge.evaluator, observer)

    async def one(task: Task) -> Rollout:
        try:
            return await _play_one(task, ask, judge, observer, rules, seed)
        finally:
            ask.leave()

    try:
        return await side_by_side(tasks, one, at_once)
    finally:
        if not shared:
            await judge.close()


async def _play_one(
    task: Task,
    ask: _Asked,
    judge: AwaitedEvaluator,
    observer: Observer,
    rules: EpisodeConfig,
    seed: int | str,
) -> Rollout:
    episode = Episode(task.problem, rules.read_by(observer))
    completions: list[Completion] = []

    async def answer(messages: tuple[Message, ...]) -> Answer:
        key = task.key._replace(turn=len(completions))
        found = await ask(SampleRequest(key, messages, request_seed(seed, key)))
        completions.append(found)
        return Answer(found.text, cut_off=found.finish == "length")

    seat = EpisodeSeat(episode, observer)
    played = await play_turns(seat, answer, judge.evaluate_or_excuse)
    return Rollout(task.key, played, tuple(completions))


class _Asked(Protocol):
    """Channel by which trajectories ask a policy for answers."""

    async def __call__(self, request: SampleRequest) -> Completion: ...

    def leave(self) -> None:
        """Note that one trajectory will send no further request."""


class _Stream:
    """Channel to a `Policy`: passes each request on as it comes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def __call__(self, request: SampleRequest) -> Completion:
        found = self._policy.sample([request])
        try:
            async for _, completion in found:
                return completion
        finally:
            # If the generator stayed open, its requests would go on until garbage collection.
            if isinstance(found, AsyncGenerator):
                await found.aclose()
        raise RuntimeError(f"the policy gave no completion for {tuple(request.key)}")

    def leave(self) -> None:
        pass


class _Barrier:
    """Channel to a `BatchPolicy`: collects one request of each live trajectory for one call.

    The call is made in the event loop's own thread: nothing else could go on meanwhile, and what a
    model does is bound to its thread (the current GPU is).
    """

    def __init__(self, policy: BatchPolicy, live: int) -> None:
        self._policy, self._live = policy, live
        self._waiting: list[AwaitedAnswer] = []

    async def __call__(self, request: SampleRequest) -> Completion:
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._generate_if_all_wait()
        return await answer

    def leave(self) -> None:
        self._live -= 1
        self._generate_if_all_wait()

    def _generate_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._live:
            return
        asked, self._waiting = sorted(self._waiting, key=lambda each: each[0].key), []
        # Not in this call: the caller may be handling an exception or a cancellation.
        asyncio.get_running_loop().call_soon(self._generate, asked)

    def _generate(self, asked: list[AwaitedAnswer]) -> None:
        live = [each for each in asked if not each[1].done()]
        settle(live, generate_each(self._policy, [request for request, _ in live]))


def generate_each(
    policy: BatchPolicy, requests: Sequence[SampleRequest]
) -> list[Completion | BaseException]:
    """Return a completion for each request, or the error that came in its place.

    Where some prompts are too long, the others are generated without them.
    """
    if not requests:
        return []
    try:
        found = policy.generate(requests)
        if len(found) != len(requests):
            raise RuntimeError(f"{len(found)} completions for {len(requests)} requests")
        return [*found]
    except (KeyboardInterrupt, SystemExit):
        raise  # ends the event loop, and with it the play
    except BaseException as error:
        refused = set(range(len(requests)))
        if isinstance(error, PromptTooLong) and error.places:
            refused &= set(error.places)
        left = [each for place, each in enumerate(requests) if place not in refused]
        others = iter(generate_each(policy, left))
        return [error if place in refused else next(others) for place in range(len(requests))]


def settle(asked: Sequence[AwaitedAnswer], found: Sequence[Completion | BaseException]) -> None:
    """Set the completion, or the exception, of each request that still waits for one."""
    for (_, answer), each in zip(asked, found, strict=True):
        if answer.done():
            continue
        if isinstance(each, BaseException):
            answer.set_exception(each)
        else:
            answer.set_result(each)


def _agree(evaluator: Evaluator, observer: Observer) -> None:
    """Refuse an observer whose ruleset or device differs from the evaluator's."""
    told = (find_ruleset(observer.ruleset), observer.device.partition(":")[0])
    can = evaluator.capabilities
    holds = (can.ruleset, can.device.partition(":")[0])
    if told != holds:
        raise UsageError(
            f"the observer tells of ruleset {told[0].label!r} on {told[1]!r}, the evaluator judges "
            f"by {holds[0].label!r} on {holds[1]!r}; build the observer from the evaluator's own"
        )
