"""Episodes for tinker-cookbook's trainers: its `Env`, `EnvGroupBuilder` and `RLDatasetBuilder`.

`EpisodeDatasetBuilder` is what ``tinker_cookbook.rl.train.Config(dataset_builder=...)`` takes; it
is made from a configuration of ``kernelgym-train``. Contract:

- problems, prompts, turns, verdicts and scores are those of a run by that configuration. Prompts
  are rendered by the model's own chat template, not by one of the cookbook's renderers;
- the rewards of an episode add up to the return of its first turn, by ``reward.gamma`` and
  ``reward.returns``. The cookbook subtracts the group's mean and gives every token of the episode
  what is left: credit by turn is ``kernelgym-train``'s alone;
- a kernel that could not be judged, for a fault that is not the candidate's, raises `JudgeError`
  and is never scored; with ``rollout_error_tolerance=True`` the cookbook plays the episode anew;
- an answer that a limit of tokens cut off is read as such, and the episode goes on. The cookbook's
  own `MessageEnv` would end it with a reward of its own, so this is an `Env` of tokens;
- what a batch holds follows from the settings and the batch's number, so a run that the cookbook
  resumes plays what it would have played. No problem comes twice before all have come once;
- group builders pickle; each process that plays them has one judge, which ends with it.

It does not cover the curriculum, refills, guards and the run's folder. The settings of optimiser,
credit, sampling temperature and run are not read: the cookbook has its own.
"""

from __future__ import annotations

import atexit
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kernelgym import JudgeError, Observer
from kernelgym.adapters.frameworks import check_framework
from kernelgym.episodes.episode import Episode
from kernelgym.episodes.playing import EpisodeSeat
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.types import Answer, Problem
from kernelgym_train.config.config import Config, dump_config, load_config
from kernelgym_train.launch.assembly import (
    TokenCounter,
    episode_rules,
    held_out_problems,
    run_evaluator,
    training_observer,
    training_problems,
    with_memory_budget,
)
from kernelgym_train.launch.prompts import check_prompts
from kernelgym_train.models import answer_ends, known_context, load_tokenizer
from kernelgym_train.rollout.huggingface_policy import ChatText

check_framework("tinker-cookbook")

import chz  # noqa: E402
import tinker  # noqa: E402
from tinker_cookbook.rl.types import (  # noqa: E402
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)

_STOP_REASONS = {
    "solved": "completed",
    "no_improvement": "completed",
    "budget": "max_turns",
    "cut": "context_overflow",
}
"""Names in the cookbook of the reasons for which an episode ended."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Objects that one configuration's episodes share in a process: judge, tokenizer, rules."""

    config: Config
    judge: AwaitedEvaluator
    text: ChatText
    stop: tuple[int, ...]
    """Token ids that end an answer."""

    def observer(self, max_turns: int | None) -> Observer:
        """Return the observer that writes the prompts and counts their tokens."""
        device = self.judge.evaluator.capabilities.device
        count = TokenCounter(self.text.tokenizer)
        return training_observer(self.config, device, count, max_turns=max_turns)


class EpisodeEnv(Env):  # type: ignore[misc]
    """One episode, played once.

    Args:
        seat: The episode.
        table: Objects that the episode shares with others.
    """

    def __init__(self, seat: EpisodeSeat, table: _Table) -> None:
        self._seat, self._table = seat, table
        self._opened = ""
        self._return = 0.0

    async def initial_observation(self) -> tuple[tinker.ModelInput, list[int]]:
        """Return the token ids of the first prompt, and those that end an answer."""
        return self._shown()

    async def step(self, action: Sequence[int], *, extra: Mapping[str, Any] | None = None) -> Any:
        """Take an answer, and return the ``StepResult`` with its reward and the next prompt.

        Args:
            action: The answer's ids, as they were sampled.
            extra: ``stop_reason``: ``length`` if a limit of tokens cut the answer off.

        Raises:
            JudgeError: If the kernel could not be judged.
        """
        cut_off = (extra or {}).get("stop_reason") == "length"
        answer = Answer(self._table.text.answer(action, self._opened), cut_off=cut_off)
        seat = self._seat
        kernel = seat.read(answer)
        judge = self._table.judge
        seat.take(answer, None if kernel is None else await judge.evaluate(seat.problem, kernel))
        played = seat.trajectory
        turn = played.turns[-1]
        if not played.valid:
            raise JudgeError(
                f"an answer to {seat.problem.id} could not be judged: {turn.verdict.message}"
            )
        config = self._table.config
        value = played.returns(config.reward.gamma, config.reward.returns)[0]
        reward, self._return = value - self._return, value
        metrics = {
            "correct": float(turn.verdict.correct),
            "parsed": float(turn.reply.kernel is not None),
            "cut_off": float("cut_off" in turn.reply.defects),
            "score": turn.score.total,
        }
        if seat.over:
            shown: tuple[tinker.ModelInput, list[int]] = (tinker.ModelInput.empty(), [])
            metrics[f"stop/{_STOP_REASONS[played.ended]}"] = 1.0
        else:
            shown = self._shown()
        return StepResult(
            reward=reward,
            episode_done=seat.over,
            next_observation=shown[0],
            next_stop_condition=shown[1],
            metrics=metrics,
            logs={"problem": seat.problem.id, "status": str(turn.verdict.status)},
        )

    def _shown(self) -> tuple[tinker.ModelInput, list[int]]:
        ids, self._opened = self._table.text.prompt(self._seat.observation())
        return tinker.ModelInput.from_ints(list(ids)), list(self._table.stop)


@dataclass(frozen=True, slots=True)
class EpisodeGroupBuilder(EnvGroupBuilder):  # type: ignore[misc]
    """Makes the episodes of one group, all on one problem."""

    config: Config
    problem: Problem
    episodes: int
    """Number of episodes in the group."""
    step: int
    """Number of the batch, from 0, by which a schedule chooses the reward preset."""
    max_turns: int | None = None
    """Largest number of answers of an episode; that of the configuration if None."""

    async def make_envs(self) -> list[EpisodeEnv]:
        """Return the group's episodes; start the process's judge if there is none."""
        table = _table(self.config)
        observer = table.observer(self.max_turns)
        config = episode_rules(self.config).read_by(observer)
        config = replace(config, reward=self.config.schedule.at(self.step))
        return [
            EpisodeEnv(EpisodeSeat(Episode(self.problem, config), observer), table)
            for _ in range(self.episodes)
        ]

    def logging_tags(self) -> list[str]:
        """Return the tag of suite and level, such as ``Synthetic-L1``."""
        return [f"{self.problem.suite}-L{self.problem.level}"]


@dataclass(frozen=True, slots=True)
class EpisodeDataset(RLDataset):  # type: ignore[misc]
    """Batches of groups.

    Raises:
        IndexError: From `get_batch`, if there is no such batch.
    """

    batches: tuple[tuple[EpisodeGroupBuilder, ...], ...]

    def get_batch(self, index: int) -> list[EpisodeGroupBuilder]:
        """Return the groups of a batch."""
        if not 0 <= index < len(self):
            raise IndexError(
                f"there is no batch {index}: the data set has {len(self)}, counted from 0"
            )
        return list(self.batches[index])

    def __len__(self) -> int:
        return len(self.batches)


@chz.chz
class EpisodeDatasetBuilder(RLDatasetBuilder):  # type: ignore[misc]
    """Makes the datasets of a configuration.

    Training has ``optimiser.steps`` batches of ``sampling.problems_per_step`` groups of
    ``sampling.group_size`` episodes; the test has ``evaluation.samples`` episodes of each held-out
    problem, and there is none if ``evaluation.every`` is 0.
    """

    config: str
    """Path of a YAML file of settings, or the name of a ready configuration."""
    settings: tuple[str, ...] = ()
    """Settings that replace those of the file, as ``key.path=value``."""

    async def __call__(self) -> tuple[EpisodeDataset, EpisodeDataset | None]:
        """Return the datasets to train on and to test on.

        Raises:
            UsageError: If a setting cannot be used, a problem or the tokenizer is not there, or
                prompts do not fit into the model's context.
        """
        config = with_memory_budget(load_config(self.config, list(self.settings)))
        problems, chosen = training_problems(config), config.evaluation
        held_out = held_out_problems(config) if chosen.every else ()
        context = known_context(config.model)
        tokenizer = load_tokenizer(config.model)
        check_prompts(config, tokenizer, context, problems, held_out, device=config.judge.device)
        group = partial(EpisodeGroupBuilder, config)
        per_batch, size = config.sampling.problems_per_step, config.sampling.group_size
        drawn = _rounds(problems, config.run.seed)
        train = EpisodeDataset(
            tuple(
                tuple(group(next(drawn), size, step) for _ in range(per_batch))
                for step in range(config.optimiser.steps)
            )
        )
        if not held_out:
            return train, None
        tests = [group(each, chosen.samples, 0, chosen.max_turns) for each in held_out]
        starts = range(0, len(tests), per_batch)
        return train, EpisodeDataset(tuple(tuple(tests[i : i + per_batch]) for i in starts))


def _rounds(problems: tuple[Problem, ...], seed: int) -> Iterator[Problem]:
    """Yield problems for the Cookbook without end; each round has all problems once."""
    for number in itertools.count():
        yield from random.Random(f"{seed}/{number}").sample(problems, len(problems))


_TABLES: dict[str, _Table] = {}


def _table(config: Config) -> _Table:
    """Return this process's judge and tokenizer; start them if needed."""
    name = dump_config(config)
    if name not in _TABLES:
        tokenizer = load_tokenizer(config.model)
        ends = answer_ends(config.model, tokenizer)
        evaluator = run_evaluator(config)
        # Worker processes that are still up at exit would be left behind.
        atexit.register(evaluator.close)
        _TABLES[name] = _Table(
            config,
            AwaitedEvaluator(evaluator),
            ChatText(tokenizer, {"enable_thinking": config.sampling.thinking}),
            ends,
        )
    return _TABLES[name]
