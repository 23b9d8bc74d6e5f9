"""`register`: registers the environments with SkyRL-Gym, whose generator plays them.

In the entry point of a SkyRL run, before it makes its trainer::

    episodes = skyrl.register("kernelgym", "Synthetic-L1-MultiTurn", max_turns=4)

and once, for SkyRL's data set of prompts, ``episodes.rows()`` as lines of JSON or as Parquet.
Contract:

- an episode appends to its conversation; the rewards of its turns are SkyRL's rewards of the steps,
  each on the last token of its answer;
- an answer whose kernel could not be judged raises `JudgeError`: ``generate()`` raises it, and the
  run stops without a reward for it. A verdict service is waited for before that happens;
- steps block. SkyRL's threads (``environment.skyrl_gym.max_env_workers``) take them side by side,
  and all episodes share one judge.

SkyRL does not tell an environment that a limit of tokens cut an answer off, so such an answer is
read as if it were whole; ``generator.zero_reward_on_non_stop`` is SkyRL's own rule for those.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from kernelgym.adapters.frameworks import check_framework
from kernelgym.adapters.live_episode import EpisodeFactory, LiveEpisode
from kernelgym.errors import UsageError

check_framework("skyrl")

import skyrl_gym  # noqa: E402
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput  # noqa: E402


class SkyrlEpisode(BaseTextEnv):
    """One episode, as SkyRL's generator makes it.

    Args:
        env_config: Not read; SkyRL knows settings of its own environments only.
        extras: Columns of the prompt's row, with the ``max_turns`` that SkyRL adds.

    Raises:
        UsageError: If there is no such problem, or SkyRL's ``generator.max_turns`` is another than
            that of the episodes.
    """

    factory: ClassVar[EpisodeFactory]
    name: ClassVar[str]

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        self._problem_id = extras.get("problem_id")
        self.max_turns = self.factory.max_turns
        asked = extras.get("max_turns", self.max_turns)
        if asked != self.max_turns:
            raise UsageError(
                f"SkyRL's generator.max_turns is {asked}, and episodes of {self.name!r} have "
                f"{self.max_turns}: set both to the same number"
            )
        self._episode: LiveEpisode | None = None

    @classmethod
    def rows(cls) -> list[dict[str, Any]]:
        """Return SkyRL's rows of prompts, one a problem that can be played."""
        return [
            {
                "prompt": [asdict(message) for message in cls.factory.first_messages(problem)],
                "env_class": cls.name,
                "problem_id": problem.id,
            }
            for problem in cls.factory.problems
        ]

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begin the episode; return the prompt of its first turn, and the problem's id.

        Args:
            prompt: The row's prompt.
        """
        self._episode = self.factory.begin(self._problem_id)
        shown = [asdict(message) for message in self._episode.messages]
        return shown, {"problem_id": self._episode.problem.id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take an answer and wait for its verdict.

        Raises:
            JudgeError: If the kernel could not be judged.
        """
        if self._episode is None:
            raise UsageError("call init() before step(): there is no episode yet")
        result = self._episode.answer_now(action)
        self.turns += 1
        told = [] if result.over else [{"role": "user", "content": result.news}]
        return BaseTextEnvStepOutput(
            observations=told, reward=result.reward, done=result.over, metadata=result.info
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return numbers that SkyRL averages over episodes."""
        turns = () if self._episode is None else self._episode.trajectory.turns
        right = [turn.verdict for turn in turns if turn.verdict.correct]
        return {
            "solved": bool(right),
            "turns": len(turns),
            "parsed": sum(turn.reply.kernel is not None for turn in turns) / max(1, len(turns)),
            "speedup": max((verdict.speedup for verdict in right), default=0.0),
        }


def register(name: str, env_id: str, **options: Any) -> type[SkyrlEpisode]:
    """Register an environment with SkyRL-Gym; returns its class.

    Args:
        name: SkyRL's name for it, the ``env_class`` of rows.
        env_id: Id of the environment, such as ``Synthetic-L1-MultiTurn``.
        **options: Options of `gym.make`, such as ``evaluator``, a verdict service's address.

    Raises:
        UsageError: If an option is unknown or cannot be used, or `context` rewrites messages.
    """
    factory = EpisodeFactory(env_id, **options)
    factory.check_append_only("SkyRL")
    members = {"factory": factory, "name": name}
    episodes = type("RegisteredEpisode", (SkyrlEpisode,), members)
    skyrl_gym.register(id=name, entry_point=episodes)
    return episodes
