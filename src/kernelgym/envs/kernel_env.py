"""The Gymnasium environment: an episode is one problem, an action one answer, as text.

The observation is the whole text a model would be sent next; the reward of a step is that turn's
score (discounting is a training quantity, see ``info["turn_returns"]``, or the wrapper
`kernelgym.envs.wrappers.DiscountedReturn`). An episode that is solved, out of turns or out of
improvement is `terminated`; it is `truncated` only if the judge failed, and then
``info["valid"]`` is false.

The keys of `info` are listed in `kernelgym.envs.infos`. `step` is `begin` (read the answer) and
`finish` (record the verdict) with the evaluator between them, so that `kernelgym.envs.vector` can
judge a whole batch at once.

Turn logic lives in `kernelgym.episodes.episode`, judging in `kernelgym.judge`; neither is here.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded

from kernelgym.envs.infos import episode_frame, episode_info
from kernelgym.envs.problem_choice import (
    agreed_budget,
    agreed_on,
    choose_problems,
    start_kernel,
    with_own_rules,
)
from kernelgym.envs.spaces import KernelText
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.episodes.stopping import StopRule, check_stop_rule
from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.counting import CountingEvaluator
from kernelgym.evaluators.remote import evaluator_at
from kernelgym.feedback import FEEDBACK_TOKENS
from kernelgym.languages import check_language
from kernelgym.prompts.context import ContextPolicy
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import HISTORY_TOKENS, Observer, render
from kernelgym.prompts.parts import Part
from kernelgym.retrieval.prompt_part import Retrieval, ready_retrieval
from kernelgym.rewards import RewardPreset, check_speed, check_trials, reward_preset
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites import Ids, Suite
from kernelgym.tokens import TokenCounter, check_counter, estimate_tokens
from kernelgym.types import GAMMA, Evaluator, Kernel, Message, Problem, Turn, Verdict
from kernelgym.types import return_variant as find_returns

RENDER_MODES = ("ansi", "human")
RESET_OPTIONS = ("allow_degenerate", "kernel", "problem_id")
"""Keys of ``reset(options=...)``: the problem to play, the kernel to start from, and whether the
problem may be one that is known to be degenerate."""

StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class KernelEnv(gym.Env[str, str]):
    """Write a kernel that beats a problem's reference.

    Args:
        suite: Name of a suite, path of a folder of problems, or a suite.
        level: Level of the suite; None for all.
        language: Language the kernels are written in.
        device: Device they run on; the evaluator's, or ``cpu``, if None.
        ruleset: Rules of the verdicts; the evaluator's, or ``strict``, if None.
        max_turns: Answers per episode.
        reward: Preset that scores the turns, or its name.
        problems: Ids, numbers or a range such as ``"1-20,33"``, or the problems themselves.
        split: Split of the suite, such as ``train``.
        sizes: ``small`` for the small forms of KernelBench's problems, or ``full``.
        exclude_degenerate: Do not even list problems that are known to be degenerate.
        allow_degenerate: Play problems that are known to be degenerate too. Otherwise, unless the
            ruleset checks no problems, they are listed but not drawn, and refused by id.
        evaluator: Evaluator that judges the kernels, or the address of a verdict service; the
            environment never closes it. If None, an evaluator that all environments of this
            process share is taken when first needed.
        memory_bytes: The memory budget: most memory that judging one kernel may take. The
            evaluator's own, or half of the device's, if None. Problems that are known to need more
            are listed but not drawn, and refused by id.
        stop_when: When to stop early; see `kernelgym.episodes.stopping`.
        examples: Worked examples in the prompt: ``zero_shot``, ``one_shot``, ``few_shot``, or how
            many.
        hardware: Facts about the device that the prompt tells: a `Hardware`, a mapping of its
            fields, or the name of a GPU such as ``H100``.
        context: Policy that chooses what is shown of earlier turns: a name from
            `kernelgym.prompts.context.CONTEXTS`, a policy, or a mapping of the fields of a
            `Context`.
        context_tokens: Largest number of tokens that earlier turns take in the prompt.
        prompt_tokens: Largest number of tokens of the whole prompt; None for no limit. A problem
            that does not fit is refused by `reset`.
        retrieval: Solved problems like the one asked, shown in the prompt: the name of an index
            (``synthetic``), a `kernelgym.retrieval.prompt_part.Retrieval`, or a mapping of its
            fields; None for none.
        feedback_level: Level of detail of the feedback: ``minimal``, ``standard`` or ``profile``.
        profile: ``ncu`` to read hardware counters of correct kernels on a GPU, which feedback of
            the level ``profile`` then tells; each takes some ten seconds. Empty for none.
        feedback_tokens: Largest number of tokens of one turn's feedback.
        count_tokens: Function that counts a text's tokens, for these budgets and
            ``info["prompt_tokens"]``; four characters are taken for one if None.
        gamma: Discount factor of ``info["turn_returns"]``.
        returns: Variant of the returns in ``info["turn_returns"]``: ``sum`` or
            ``max``; see `kernelgym.returns`.
        render_mode: ``ansi`` or ``human``.
        **unknown: Refused, with the options that exist.

    Raises:
        UsageError: If an argument is unknown or does not fit the others.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        suite: str | Path | Suite = "KernelBench",
        level: int | None = None,
        *,
        language: str = "triton",
        device: str | None = None,
        ruleset: str | Ruleset | None = None,
        max_turns: int = 4,
        reward: str | RewardPreset = "stage2",
        problems: Ids | Sequence[Problem] | Problem | None = None,
        split: str | None = None,
        sizes: str = "full",
        exclude_degenerate: bool = False,
        allow_degenerate: bool = False,
        evaluator: Evaluator | str | None = None,
        memory_bytes: float | None = None,
        stop_when: str | StopRule = "correct",
        examples: int | str = "one_shot",
        hardware: Hardware | Mapping[str, Any] | str | None = None,
        context: str | ContextPolicy | Mapping[str, Any] = "recent",
        context_tokens: int = HISTORY_TOKENS,
        prompt_tokens: int | None = None,
        retrieval: str | Path | Retrieval | Mapping[str, Any] | None = None,
        feedback_level: str = "standard",
        profile: str = "",
        feedback_tokens: int = FEEDBACK_TOKENS,
        count_tokens: TokenCounter | None = None,
        gamma: float = GAMMA,
        returns: str = "sum",
        render_mode: str | None = None,
        **unknown: object,
    ) -> None:
        for name in unknown:
            raise UnknownName("option", name, _options())
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UnknownName("render mode", render_mode, RENDER_MODES)
        if profile not in ("", "ncu"):
            raise UnknownName("profile", profile, ("ncu",))
        if profile and feedback_level != "profile":
            raise UsageError(f"profile={profile!r} needs feedback_level='profile'")
        if not isinstance(gamma, int | float) or not 0.0 <= gamma <= 1.0:
            raise UsageError(f"gamma must be a number in [0, 1], got {gamma!r}")
        given = None if isinstance(evaluator, str) else evaluator
        suite, ruleset = with_own_rules(suite, ruleset, given)
        if isinstance(evaluator, str):
            rules = None if ruleset is None else find_ruleset(ruleset)
            evaluator = evaluator_at(evaluator, rules)
        self.device, self.ruleset = agreed_on(evaluator, device, ruleset)
        self.language = check_language(language, self.device, self.ruleset.precision).name
        self.gamma = gamma
        self.returns = find_returns(returns)
        self.render_mode = render_mode
        self.memory_bytes = agreed_budget(evaluator, memory_bytes, self.device)
        self._choice = choose_problems(
            suite,
            level,
            problems,
            split,
            ruleset=self.ruleset,
            device=self.device,
            sizes=sizes,
            exclude_degenerate=exclude_degenerate,
            allow_degenerate=allow_degenerate,
            memory_bytes=self.memory_bytes,
            judged_here=evaluator is None,
        )
        self.problems = self._choice.problems
        count = estimate_tokens if count_tokens is None else check_counter(count_tokens)
        parts: tuple[Part, ...] = ()
        if retrieval is not None:
            parts = (ready_retrieval(retrieval, self.language, self.device),)
        self.observer = Observer(
            self.language,
            self.device,
            self.ruleset,
            max_turns,
            examples,
            hardware,
            parts,
            context,
            context_tokens,
            count,
            prompt_tokens,
        )
        self._config = EpisodeConfig(
            reward=reward,
            stop_when=stop_when,
            feedback_level=feedback_level,
            feedback_tokens=feedback_tokens,
        ).read_by(self.observer)
        # Built once here so that a wrong option fails now and not at the first reset.
        trial = Episode(self.problems[0], self._config)
        self.max_turns = max_turns
        self._profile = profile
        if profile and evaluator is not None:
            evaluator = CountingEvaluator(evaluator)
        self._evaluator = evaluator
        self._owns_evaluator = False
        self.reward = trial.reward
        check_stop_rule(trial.stop_when, self.language, self.device)
        self.observation_space = KernelText()
        self.action_space = KernelText()
        self._spec: EnvSpec | None = None
        self._episode: Episode | None = None
        self._start: Kernel | None = None

    @property
    def reward(self) -> RewardPreset:
        """Preset that scores the turns from the next reset on.

        An episode keeps the preset that it began with.

        A curriculum sets it: ``env.unwrapped.reward = schedule.at(step)``.

        Raises:
            UsageError: If the value is not a preset, or a preset that needs speed where
                kernels are not timed, or every trial where the ruleset stops at the first failure.
        """
        return reward_preset(self._config.reward)

    @reward.setter
    def reward(self, which: str | RewardPreset) -> None:
        preset = reward_preset(which)
        given = self._evaluator
        timed = given is None or given.capabilities.timed
        check_speed(preset, self.language, self.device, timing=timed)
        check_trials(preset, self.ruleset)
        self._config = dataclasses.replace(self._config, reward=preset)

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's specification of the environment, with the memory budget that was fixed."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = with_budget(spec, self.memory_bytes)

    @property
    def evaluator(self) -> Evaluator:
        """Evaluator that judges the kernels; the shared one is taken when this is first read."""
        if self._evaluator is None:
            from kernelgym.judge import shared_evaluator

            shared = shared_evaluator(
                device=self.device, ruleset=self.ruleset, memory_bytes=self.memory_bytes
            )
            self._evaluator = CountingEvaluator(shared, owns=True) if self._profile else shared
            self._owns_evaluator = True
        return self._evaluator

    @property
    def episode(self) -> Episode:
        """The current episode.

        Raises:
            ResetNeeded: If there is none yet.
        """
        if self._episode is None:
            raise ResetNeeded("call reset() before step(): there is no episode yet")
        return self._episode

    @property
    def start(self) -> Kernel | None:
        """The kernel that the current episode started from, if one was given."""
        return self._start

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages that the model reads next; the observation is the same as one text."""
        episode = self.episode
        return self.observer.observe(episode.problem, episode.turns, start=self._start)

    @property
    def news(self) -> Message:
        """The user message that follows the last answer: its feedback and what is asked next.

        A framework that keeps the conversation itself appends it. After a reset it is the first
        user message; the system message stands before it in `messages`.

        Raises:
            UsageError: If `context` rewrites earlier messages; only ``transcript`` does not.
        """
        if not self.observer.is_append_only:
            raise UsageError(
                "news needs a conversation whose messages never change: make the environment with "
                "context='transcript', or send the whole of `messages` at every turn"
            )
        return self.messages[-1]

    @property
    def retrieved(self) -> tuple[str, ...]:
        """Ids of the entries of an index that `messages` shows."""
        return self._retrieved()[0]

    def _retrieved(self) -> tuple[tuple[str, ...], int]:
        episode = self.episode
        return self.observer.retrieved(episode.problem, episode.turns, start=self._start)

    @property
    def drawn(self) -> tuple[Problem, ...]:
        """Problems that `reset` may draw: neither degenerate nor above the memory budget."""
        return self._choice.drawn

    @property
    def problem(self) -> Problem:
        """The current episode's problem."""
        return self.episode.problem

    def sibling(self, *, borrows: bool = False) -> Self:
        """Return an environment with the same settings and problems, not yet reset.

        Args:
            borrows: Whether the new environment uses this environment's evaluator and never closes
                it; otherwise it takes its own share of the shared evaluator.
        """
        twin = copy.copy(self)
        twin._episode = twin._start = None
        twin._np_random = twin._np_random_seed = None
        if borrows:
            twin._evaluator = self.evaluator
        elif self._owns_evaluator:  # the twin takes a share of its own when it needs one
            twin._evaluator = None
        twin._owns_evaluator = False
        twin.observation_space, twin.action_space = KernelText(), KernelText()
        return twin

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of the choice of problem: the same seed gives the same problem.
            options: ``problem_id``: a full id, an id without its suite, or a number;
                ``kernel``: source of a kernel shown as the current attempt, not yet judged;
                ``allow_degenerate``: True to play a degenerate problem all the same.

        Raises:
            UsageError: If an option, the problem or the kernel is unknown or unusable, or the
                problem needs more than the memory budget.
            DegenerateProblem: If a degenerate problem is asked for and not allowed.
        """
        super().reset(seed=seed)
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise UsageError(
                "the options of reset are a dictionary such as {'problem_id': 'L1/3'}, "
                f"got {options!r}"
            )
        for name in options:
            if name not in RESET_OPTIONS:
                raise UnknownName("reset option", name, RESET_OPTIONS)
        start = start_kernel(options.get("kernel"), self.language)
        allow = options.get("allow_degenerate", False)
        if not isinstance(allow, bool):
            raise UsageError(f"option 'allow_degenerate' is True or False, got {allow!r}")
        if (asked := options.get("problem_id")) is not None:
            problem = self._choice.find(asked, allow)
        else:
            drawn = self._choice.fitting if allow else self._choice.drawn
            problem = drawn[int(self.np_random.integers(len(drawn)))]
        self._episode, self._start = Episode(problem, self._config), start
        if self.render_mode == "human":
            self.render()
        return self._seen(None)

    def step(self, action: str) -> StepResult:
        """Judge one answer and record the turn.

        Args:
            action: The model's text; a `kernelgym.types.Answer` can say that a limit cut it off.

        Raises:
            InvalidAction: If `action` is not a string.
            ResetNeeded: If the episode is over, or none was begun.
        """
        read = self.begin(action)
        if isinstance(read, Kernel):
            read = self.evaluator.evaluate(self.problem, read)
        return self.finish(action, read)

    def begin(self, action: str) -> Kernel | Verdict:
        """Read one answer; returns a kernel to be judged, or the verdict if there is none.

        Raises:
            InvalidAction: If `action` is not a string.
            ResetNeeded: If the episode is over, or none was begun.
        """
        self.check_action(action)
        read = self.episode.read(action)
        if isinstance(read, Verdict):
            return read
        return self.episode.known_verdict(read) or read

    def check_action(self, action: object) -> None:
        """Raise what `step` would raise for this action, without taking it."""
        if not isinstance(action, str):
            raise InvalidAction(f"an action is the answer's text (str), got {type(action)!r}")
        if self.episode.over:
            raise ResetNeeded(f"the episode is over ({self.episode.ended}); call reset()")

    def finish(self, action: str, verdict: Verdict) -> StepResult:
        """Record the verdict on the answer that `begin` read; return what `step` returns."""
        episode = self.episode
        turn = episode.record(action, verdict)
        full = not episode.over and self.observer.is_full(
            episode.problem, episode.turns, start=self._start
        )
        if full:
            episode.cut()
        if self.render_mode == "human":
            self.render()
        observation, info = self._seen(turn)
        cut = self.episode.ended == "cut"
        return observation, float(turn.score.total), self.episode.over and not cut, cut, info

    def render(self) -> str | None:
        """Return (``ansi``) or print (``human``) the problem, the turn and the last feedback."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: make the environment with 'ansi'")
            return None
        frame = episode_frame(self.episode, self.device)
        if self.render_mode == "ansi":
            return frame
        print(frame)
        return None

    def close(self) -> None:
        """Release the shared evaluator, if it was taken; one that was given stays open."""
        if self._owns_evaluator and self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None
            self._owns_evaluator = False

    def _seen(self, turn: Turn | None) -> tuple[str, dict[str, Any]]:
        """Return the observation and the info of the current state."""
        messages = self.messages
        prompt_tokens = self.observer.tokens(messages)
        info = episode_info(
            self.episode,
            self.device,
            self.gamma,
            turn,
            returns=self.returns,
            prompt_tokens=prompt_tokens,
            memory_bytes=self.memory_bytes or 0,
            retrieved=self._retrieved(),
        )
        return render(messages), info


def with_budget(spec: EnvSpec | None, memory_bytes: int | None) -> EnvSpec | None:
    """Return an environment's specification that names a memory budget.

    An environment made of it draws the same problems again.

    Args:
        spec: The specification that Gymnasium sets; it is not changed.
        memory_bytes: The budget; None leaves the specification as it is.
    """
    if spec is None or memory_bytes is None:
        return spec
    return dataclasses.replace(spec, kwargs={**spec.kwargs, "memory_bytes": memory_bytes})


def _options() -> list[str]:
    """Return the names of the options that `KernelEnv` takes."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [n for n, p in inspect.signature(KernelEnv).parameters.items() if p.kind in kinds]
