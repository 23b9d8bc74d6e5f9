"""The turn loop of an eval run; no answer or verdict that is on disk is requested again.

`kernelgym.episodes.playing` plays the turns. This module gives it a policy and a judge that look
into the run's folder first. So a run is resumed by playing it again: answers and verdicts on disk
are taken from there, and only the others are requested. Contract:

- an answer is on disk before it is used, and a verdict before the next answer is requested;
- at most `concurrency` answers are requested at the same time. Up to `ahead` further episodes are
  live, whose kernels are being judged, so that neither side waits for a batch of the other;
- memory does not grow with the number of episodes: an episode that has ended is written and freed;
- an answer that a policy cannot give (`PolicyFailure`) becomes a line of ``failures.jsonl``; its
  episode is cut, and the same command requests the answer again;
- an episode that needs an answer without a policy, or a verdict without a judge, waits;
- `RunStopped` ends the run without loss: no further answer is requested, and answers that were
  paid for are kept.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelgym.benchmark.run.folder import RunFolder
from kernelgym.benchmark.run.generations import AnswerKey, AnswerRequest, Generation, request_seed
from kernelgym.benchmark.run.plan import EvalPlan
from kernelgym.benchmark.run.policies import AnswerMissing, EvalPolicy, ProviderFailure, RunStopped
from kernelgym.episodes.playing import EpisodeSeat, play_turns, side_by_side
from kernelgym.errors import PolicyFailure
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.prompts.observer import Observer
from kernelgym.types import Answer, Kernel, Message, Problem, Turn, Verdict

EMPTY_AT_FIRST = 16
"""Number of answers without text at the start of a run after which the run stops."""

Episode = tuple[Problem, int]
"""A problem and the number of the sample."""


class _Waits(Exception):
    """An episode needs an answer or a verdict that this command does not request."""


@dataclass(slots=True)
class EvalSummary:
    """Counts of a command's work on a run."""

    episodes: int = 0
    """Number of episodes of the plan."""
    ended: int = 0
    """Number of episodes that have ended, those of earlier commands included."""
    cut: int = 0
    """Number of episodes that were cut because an answer or a verdict failed."""
    waiting: int = 0
    """Number of episodes that still need an answer or a verdict that the command does not request:
    `--generate-only` requests no verdicts and `--judge-only` no answers."""
    answers: int = 0
    """Number of answers that this command received."""
    answers_there: int = 0
    """Number of answers that were on disk before."""
    empty: int = 0
    """Number of answers of this command without text."""
    judged: int = 0
    """Number of kernels that were judged for this command."""
    failures: collections.Counter[str] = field(default_factory=collections.Counter)
    """Number of failed answers by kind of failure."""
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    """Number of verdicts by status, of all turns of the run, earlier commands' included."""
    usd: float = 0.0
    """Cost of this command's answers in US dollars, where prices are known."""
    stopped: str = ""
    """Reason why the run stopped before its end; empty if it did not stop."""


def episodes_of(plan: EvalPlan, problems: Sequence[Problem]) -> Iterator[Episode]:
    """Yield a run's episodes by problem, then by sample."""
    return ((problem, sample) for problem in problems for sample in range(plan.samples))


async def drive(
    plan: EvalPlan,
    problems: Sequence[Problem],
    folder: RunFolder,
    observer: Observer,
    policy: EvalPolicy | None,
    judge: AwaitedEvaluator | None,
    *,
    concurrency: int = 8,
    ahead: int = 64,
    on_episode: Callable[[], object] = lambda: None,
) -> EvalSummary:
    """Play a run as far as it can be played.

    Args:
        plan: The plan.
        problems: The plan's problems, in its order.
        folder: Folder of the run.
        observer: Observer of the plan, which writes the prompts.
        policy: Source of the answers that are not on disk; None to request none.
        judge: Source of the verdicts that are not on disk; None to request none.
        concurrency: Largest number of answers that are requested at the same time.
        ahead: Largest number of further live episodes.
        on_episode: Function that is called for each episode that ended, was cut, or waits.

    Returns:
        Counts of what was done.

    Raises:
        Exception: If the policy or the judge fails in a way that concerns more than one answer.
    """
    run = _Run(plan, folder, observer, policy, judge, asyncio.Semaphore(concurrency))
    there = folder.keep_ended()
    run.done.answers_there = folder.answers
    # First samples of all problems come first, so that a run that is stopped covers every problem.
    order = sorted(episodes_of(plan, problems), key=lambda episode: episode[1])
    run.done.episodes = len(order)
    left = iter([(p, sample) for p, sample in order if (p.id, sample) not in there])
    ended = there & {(problem.id, sample) for problem, sample in order}
    run.done.ended, run.done.statuses = len(ended), folder.statuses(ended)

    async def seat(number: int) -> None:
        del number
        for problem, sample in left:
            await run.play(problem, sample)
            on_episode()

    live = min(concurrency + ahead, run.done.episodes - run.done.ended)
    await side_by_side(range(live), seat)
    if not run.done.stopped and run.done.answers and run.done.empty == run.done.answers:
        run.done.stopped = _nothing_said(run.done.answers)
    folder.order((problem.id, sample) for problem, sample in episodes_of(plan, problems))
    return run.done


@dataclass(slots=True)
class _Run:
    """Everything that the episodes of one command share."""

    plan: EvalPlan
    folder: RunFolder
    observer: Observer
    policy: EvalPolicy | None
    judge: AwaitedEvaluator | None
    room: asyncio.Semaphore
    """Semaphore that limits the number of answers requested at the same time."""
    done: EvalSummary = field(default_factory=EvalSummary)

    async def play(self, problem: Problem, sample: int) -> None:
        """Play one episode as far as it goes."""
        episode = _Episode(self, problem, sample)
        try:
            played = await play_turns(episode.seat, episode.answer, episode.judge)
        except _Waits:
            await episode.note()
            self.done.waiting += 1
            return
        await episode.note()
        if played.turns:
            record = self.plan.record(played, self.observer, sample)
            await self.folder.trajectories.append(record.to_dict())
        if episode.is_cut:
            self.done.cut += 1
        else:
            self.done.ended += 1

    async def ask(self, policy: EvalPolicy, asked: AnswerRequest) -> Generation:
        """Request one answer and put it on disk.

        Raises:
            PolicyFailure: If it cannot be had.
            _Waits: If the run has stopped.
        """
        async with self.room:
            if self.done.stopped:
                raise _Waits
            try:
                found = await policy.answer(asked)
            except RunStopped as stopped:
                self.done.stopped = self.done.stopped or str(stopped)
                raise _Waits from None
            except AnswerMissing as missing:
                await self._fail(asked.key, "missing", str(missing))
                raise
            except PolicyFailure as failure:
                tries, usd = 1, None
                if isinstance(failure, ProviderFailure):
                    tries, usd = failure.tries, failure.usd
                await self._fail(asked.key, "provider", str(failure), tries, usd)
                raise
            # The answer is paid for, so it is written even if the run is cancelled now.
            await asyncio.shield(self._keep(asked.key, found))
        return found

    async def _keep(self, key: AnswerKey, found: Generation) -> None:
        await self.folder.generations.append(key.to_dict() | found.to_dict())
        self.done.answers += 1
        self.done.usd += found.usd or 0.0
        if found.is_empty:
            self.done.empty += 1
            kind = "content_filter" if found.finish_reason == "content_filter" else "empty"
            said = f"the answer holds no text (finish reason {found.finish_reason!r})"
            await self._fail(key, kind, said, found.tries)
        if self.done.empty == self.done.answers == EMPTY_AT_FIRST:
            self.done.stopped = _nothing_said(self.done.answers)

    async def _fail(
        self, key: AnswerKey, kind: str, message: str, tries: int = 1, usd: float | None = None
    ) -> None:
        self.done.failures[kind] += 1
        row: dict[str, Any] = {"kind": kind, "message": message, "tries": tries}
        if usd is not None:
            row["usd"] = usd
        await self.folder.failures.append(key.to_dict() | row)


def _nothing_said(answers: int) -> str:
    """Return the message about a model whose answers are all empty."""
    return (
        f"the model answered nothing to all {answers} requests: its answers hold no text; raise "
        "--max-tokens if it is cut off while it thinks, or look into generations.jsonl"
    )


class _Episode:
    """One episode, whose answers and verdicts are looked up on disk first."""

    def __init__(self, run: _Run, problem: Problem, sample: int) -> None:
        self._run, self._sample = run, sample
        self.seat = EpisodeSeat(run.plan.episode(problem), run.observer)
        self._noted = 0

    @property
    def is_cut(self) -> bool:
        """True if the episode lacks an answer, or its last turn lacks a verdict."""
        turns = self._turns
        return not self.seat.over or not (turns and turns[-1].verdict.valid)

    @property
    def _turns(self) -> Sequence[Turn]:
        return self.seat.episode.turns

    def _key(self, turn: int) -> AnswerKey:
        return AnswerKey(self.seat.problem.id, self._sample, turn)

    async def answer(self, messages: tuple[Message, ...]) -> Answer:
        """Return the next answer, from the disk or the policy."""
        await self.note()
        run, key = self._run, self._key(len(self._turns))
        found = run.folder.generation(key)
        if found is None:
            if run.policy is None:
                raise _Waits
            seed = request_seed(run.plan.seed, key)
            asked = AnswerRequest(self.seat.problem, self._sample, key.turn, messages, seed)
            found = await run.ask(run.policy, asked)
        return found.answer

    async def judge(self, problem: Problem, kernel: Kernel) -> Verdict:
        """Return a kernel's verdict, from the disk or the judge."""
        run, key = self._run, self._key(len(self._turns))
        if (known := run.folder.verdict(key, kernel)) is not None:
            return known
        if run.judge is None:
            raise _Waits
        found = await run.judge.evaluate_or_excuse(problem, kernel)
        run.done.judged += 1
        return found

    async def note(self) -> None:
        """Write the verdicts of the turns that were played since the last call."""
        run = self._run
        new = self._turns[self._noted :]
        self._noted += len(new)
        for turn in new:
            run.done.statuses[turn.verdict.status.value] += 1
            key, kernel = self._key(turn.index), turn.reply.kernel
            if _is_noted(run.folder, key, turn):
                continue
            row: dict[str, Any] = {
                "kernel_digest": "" if kernel is None else kernel.digest,
                "verdict": turn.verdict.to_dict(),
            }
            await run.folder.verdicts.append(key.to_dict() | row)


def _is_noted(folder: RunFolder, key: AnswerKey, turn: Turn) -> bool:
    """Return True if an eval run's folder already holds a turn's verdict."""
    if turn.reply.kernel is None:
        return folder.has_verdict(key)
    return folder.verdict(key, turn.reply.kernel) is not None
