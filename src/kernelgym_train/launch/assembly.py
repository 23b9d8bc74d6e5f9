"""Makes the parts of a training run from its configuration: problems, judge, observer, steps.

Contract: the functions serve every backend, and evaluation without training. A part that the
configuration names and that is missing is a `UsageError`. The caller closes an evaluator that it
made here.

Backends make models and optimisers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from kernelgym import (
    CachedEvaluator,
    LocalEvaluator,
    Message,
    Observer,
    Problem,
    RemoteEvaluator,
    UsageError,
)
from kernelgym.envs.problem_choice import choose_problems
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.indexing.growing import RunArchive
from kernelgym.judging_memory import memory_budget
from kernelgym.prompts.kinds import PROMPTS
from kernelgym.retrieval.prompt_part import Retrieval, ready_retrieval
from kernelgym.suites.kernelbench_small import SMALL
from kernelgym.suites.known_memory import needed_bytes, too_large
from kernelgym.types import Evaluator
from kernelgym_train.config.config import Config
from kernelgym_train.launch.reference_sizes import reference_sizes
from kernelgym_train.rollout.device_share import DeviceHold
from kernelgym_train.rollout.huggingface_policy import ChatText
from kernelgym_train.rollout.sampling import ProblemSampler
from kernelgym_train.run.interrupts import Activity
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps

_COUNTS_KEPT = 4096


def training_problems(config: Config) -> tuple[Problem, ...]:
    """Return the problems to train on, except those that are known to be degenerate.

    Raises:
        UsageError: If there are none, or the suite cannot be read.
    """
    env = config.env
    return _problems(config, env.suite, env.levels, env.problems, env.split, env.sizes)


def held_out_problems(config: Config) -> tuple[Problem, ...]:
    """Return the held-out problems that a training run evaluates on.

    Raises:
        UsageError: If there are none, one is trained on, or the suite cannot be read.
    """
    env, chosen = config.env, config.evaluation
    same_suite = chosen.suite in ("", env.suite)
    found = _problems(
        config,
        chosen.suite or env.suite,
        chosen.levels or env.levels,
        chosen.problems,
        chosen.split,
        chosen.sizes or (env.sizes if same_suite else "full"),
    )
    trained = {mark for problem in training_problems(config) for mark in _marks(problem)}
    both = [problem.id for problem in found if not trained.isdisjoint(_marks(problem))]
    if both:
        raise UsageError(
            f"{len(both)} of {len(found)} evaluation problems are also training problems, such as "
            f"{both[0]}; set env.split and evaluation.split (or problems) to disjoint parts"
        )
    return found[: chosen.limit] if chosen.limit else found


def run_evaluator(
    config: Config,
    *,
    timing: bool | None = None,
    cache: bool | None = None,
    standby: int | None = None,
) -> Evaluator:
    """Return a run's judge: processes on this machine, or the service at ``judge.url``.

    Args:
        config: The configuration.
        timing: Whether correct kernels are timed; ``judge.timing`` if None.
        cache: Whether verdicts of earlier runs on this machine are reused; ``judge.cache`` if
            None. False for a judge that measures a second time.
        standby: Number of processes in reserve for each worker; ``judge.standby`` if None. A
            service has its own.

    Raises:
        UsageError: If the service does not answer, or judges on another device or by other rules.
    """
    judge = config.judge
    keeps = judge.cache if cache is None else cache
    times = judge.timing if timing is None else timing
    evaluator: Evaluator
    if judge.url:
        evaluator = RemoteEvaluator(judge.url, ruleset=config.rules, timing=times)
        try:
            _service_budget(config, evaluator)  # refuses one that does not judge so
        except BaseException:
            evaluator.close()
            raise
    else:
        evaluator = LocalEvaluator(
            judge.device,
            config.rules,
            judge.workers,
            times,
            standby=judge.standby if standby is None else standby,
            memory_bytes=judge.memory_bytes,
        )
    return CachedEvaluator(evaluator, owns=True) if keeps else evaluator


def _service_budget(config: Config, service: Evaluator) -> int | None:
    """Return the memory budget of the service that judges a run; None for no limit.

    Raises:
        UsageError: If it does not answer, judges on another kind of device, or has less memory than
            ``judge.memory_bytes``.
    """
    judge, can = config.judge, service.capabilities
    if can.device.partition(":")[0] != judge.device.partition(":")[0]:
        raise UsageError(
            f"judge.device={judge.device}, and {judge.url} judges on {can.device}; set "
            f"judge.device={can.device}"
        )
    own, wanted = can.memory_bytes, judge.memory_bytes
    if own is not None and wanted is not None and wanted > own:
        raise UsageError(
            f"judge.memory_bytes={wanted}, and the memory budget of {judge.url} is {own}; start "
            "the server with a larger --memory, or leave judge.memory_bytes out"
        )
    return own if wanted is None else wanted


def with_memory_budget(config: Config, total_bytes: float | None = None) -> Config:
    """Return the configuration with its memory budget as a number of bytes.

    A run keeps the number when it is resumed on another machine.

    Args:
        config: The configuration.
        total_bytes: Memory that the judge's device is assumed to have, in bytes; None for its own.
            A service has its own.

    Raises:
        UsageError: If the judge's device does not exist, or the service does not judge as the run
            asks.
    """
    given = config.judge.memory_bytes
    if config.judge.url:
        with contextlib.closing(run_evaluator(config, cache=False)) as service:
            given = _service_budget(config, service)
    elif given is None and total_bytes is not None:
        given = int(total_bytes) // 2
    budget = memory_budget(given, config.judge.device)
    judge = config.judge.model_copy(update={"memory_bytes": budget})
    return config.model_copy(update={"judge": judge})


def training_observer(
    config: Config,
    device: str,
    count: Callable[[str], int] | None = None,
    *,
    max_turns: int | None = None,
    retrieval: bool = True,
) -> Observer:
    """Return the observer that writes the prompts.

    With retrieval, the observer keeps each prompt within ``sampling.max_prompt_tokens`` less the
    tokens of the chat template, and divides them between history and entries at every turn.

    Args:
        config: The configuration.
        device: Device of the evaluator.
        count: Function that counts a text's tokens; None for an estimate.
        max_turns: Number of answers of an episode; ``env.max_turns`` if None.
        retrieval: False to leave out the entries that ``retrieval.index`` shows.

    Raises:
        UsageError: If the index is unknown, damaged, or holds too few entries.
    """
    env = config.env
    turns = env.max_turns if max_turns is None else max_turns
    extra: dict[str, Any] = {} if count is None else {"count": count}
    if config.retrieval.on and retrieval:
        template = count.template_tokens(turns) if isinstance(count, TokenCounter) else 0
        extra["parts"] = (training_retrieval(config, device),)
        extra["prompt_tokens"] = max(0, config.sampling.max_prompt_tokens - template)
    return PROMPTS[env.prompt](
        env.language,
        device,
        config.rules,
        turns,
        env.examples,
        context=env.context,
        context_tokens=env.context_tokens,
        **extra,
    )


def episode_rules(config: Config) -> EpisodeConfig:
    """Return the rules of a run's episodes; the reward is that of the first step."""
    env = config.env
    return EpisodeConfig(
        reward=config.schedule.at(0),
        stop_when=env.stop,
        feedback_level=env.feedback,
        feedback_tokens=env.feedback_tokens,
        prompt_tokens=config.sampling.max_prompt_tokens,
    )


def make_steps(
    config: Config,
    problems: tuple[Problem, ...],
    evaluator: Evaluator,
    *,
    count: Callable[[str], int] | None = None,
    log: RunLog | None = None,
    activity: Activity | None = None,
    device_share: DeviceHold | None = None,
) -> Steps:
    """Return the steps of a run; see `Steps` for the arguments."""
    return Steps(
        config,
        sampler=ProblemSampler(problems, config.run.seed, config.curriculum),
        evaluator=evaluator,
        observer=training_observer(config, evaluator.capabilities.device, count),
        rules=episode_rules(config),
        log=log,
        activity=activity,
        device_share=device_share,
        archive=run_archive(config),
    )


class TokenCounter:
    """Counts the tokens of texts, with a cache.

    An episode counts each of its texts several times, and the episodes of a group share most texts.

    Args:
        tokenizer: Tokenizer of the model.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._count = functools.lru_cache(maxsize=_COUNTS_KEPT)(self._counted)

    def __call__(self, text: str) -> int:
        """Return the number of a text's tokens, without special tokens."""
        return self._count(text)

    def template_tokens(self, turns: int) -> int:
        """Return the number of tokens that the chat template adds to an episode's longest prompt.

        Args:
            turns: Number of answers of the episode.
        """
        said = [Message("system", "x"), Message("user", "x")]
        said += [Message("assistant", "x"), Message("user", "x")] * (turns - 1)
        whole = len(ChatText(self._tokenizer, {}).prompt(said)[0])
        # One token more for each message: its end may merge with the template's text.
        return max(0, whole - len(said) * self("x")) + len(said)

    def _counted(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def training_retrieval(config: Config, device: str) -> Retrieval:
    """Return the part of the prompts that shows entries of the index.

    Entries that a held-out problem excludes are shown for no problem.

    Args:
        config: The configuration.
        device: Device of the evaluator.

    Raises:
        UsageError: If the index is unknown, damaged, or holds too few entries.
    """
    given = config.retrieval.model_dump(exclude={"archive"})  # `run_archive` makes the run's own
    given["hold_out"] = _held_out_part(config)
    return ready_retrieval(given, config.env.language, device)


def run_archive(config: Config) -> RunArchive | None:
    """Return a training run's empty archive; None if it keeps none."""
    return RunArchive() if config.retrieval.on and config.retrieval.archive else None


def _held_out_part(config: Config) -> tuple[str, ...]:
    """Return the held-out problems in the form of `Retrieval.hold_out`."""
    env, chosen = config.env, config.evaluation
    suite, split, ids = chosen.suite or env.suite, chosen.split, chosen.problems
    if not ids and not split and not chosen.levels and suite == env.suite:
        return ()  # all problems: what is trained on, too
    ids = ids or ",".join(f"L{level}" for level in chosen.levels or env.levels)
    return (f"{suite}:{split}:{ids}".rstrip(":"),)


def _marks(problem: Problem) -> tuple[str, ...]:
    """Return keys that identify a problem; problems that share one count as the same.

    A small form of a KernelBench problem shares the id without ``@small``.
    """
    if problem.suite != "KernelBench":
        return (problem.digest,)
    return problem.digest, problem.id.removesuffix(SMALL)


def _problems(
    config: Config, suite: str, levels: tuple[int, ...], ids: str, split: str, sizes: str
) -> tuple[Problem, ...]:
    rules, device = config.rules, config.judge.device
    budget = memory_budget(config.judge.memory_bytes, device)

    def of(level: int | None) -> Iterator[Problem]:
        choice = choose_problems(
            suite,
            level,
            ids or None,
            split or None,
            ruleset=rules,
            device=device,
            sizes=sizes,
            memory_bytes=budget,
            judged_here=not config.judge.url,
        )
        yield from choice.drawn

    found = [problem for level in levels or (None,) for problem in of(level)]
    chosen = tuple({problem.id: problem for problem in found}.values())
    # A problem that is found to be too large when it is judged would end the run.
    unknown = [problem for problem in chosen if needed_bytes(problem) is None]
    found_sizes = zip(unknown, reference_sizes(unknown), strict=True)
    needed = {problem.id: size.judging for problem, size in found_sizes if size is not None}
    fit = tuple(problem for problem in chosen if needed.get(problem.id, 0) <= budget)
    if not fit:
        which = min(needed, key=lambda problem_id: needed[problem_id])
        raise UsageError(
            f"all {len(chosen)} problems need more than the memory budget; "
            f"{too_large(which, needed[which], budget, device)}"
        )
    return fit
