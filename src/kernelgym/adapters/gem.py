"""`register`: registers environments with GEM (``gem-llm``), whose vector environments play them.

::

    name = register("Synthetic-L1-MultiTurn", max_turns=4)
    envs = gem.make_vec([name] * 8, async_mode=True, seed=1)

Contract:

- the first observation is system message and problem, each later one the feedback on the last
  answer and what is asked next: GEM's observation wrappers append them. With a `context` that
  rewrites messages, each observation is the whole prompt, and takes no such wrapper;
- all environments of one registration share a judge. GEM's asynchronous vector environment steps
  its environments in threads, so their kernels are judged side by side;
- ``seed`` decides the problems: environments of one seed play the same ones in the same order;
- ``spawn(same_state=True)`` copies an episode with its turns, judging no kernel anew;
- an answer whose kernel could not be judged raises `JudgeError` out of ``step``. No reward is given
  for it; the environment takes the next ``reset``.

GEM does not tell an environment that a limit of tokens cut an answer off, so such an answer is read
as if it were whole. Its vector environments replace the info of an episode's last step by that of
the next reset.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from kernelgym.adapters.frameworks import check_framework
from kernelgym.adapters.live_episode import EpisodeFactory, LiveEpisode
from kernelgym.errors import UsageError
from kernelgym.prompts.observer import render

check_framework("gem")

import gem  # noqa: E402


class GemEpisodes(gem.Env):
    """Episodes one after the other.

    Args:
        factory: Factory of the episodes.
        seed: Seed of the problems, until `reset` is given another; None to draw one.
    """

    def __init__(self, factory: EpisodeFactory, seed: int | None = None) -> None:
        super().__init__()
        self._factory = factory
        self._seeds = random.Random(seed)
        self._episode: LiveEpisode | None = None

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode; returns its first observation and its info.

        Args:
            seed: Seed of this problem and of those after it.
        """
        if seed is not None:
            self._seeds = random.Random(seed)
        self._episode = self._factory.begin(seed=self._seeds.getrandbits(31))
        return render(self._episode.messages), self._episode.start_info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take an answer and wait for its verdict.

        Raises:
            JudgeError: If the kernel could not be judged.
            UsageError: If no episode was begun.
            ResetNeeded: If the episode is over.
        """
        if self._episode is None:
            raise UsageError("call reset() before step(): there is no episode yet")
        result = self._episode.answer_now(action)
        ended = result.over and not result.truncated
        appends = result.over or self._episode.is_append_only
        shown = result.news if appends else render(self._episode.messages)
        return shown, result.reward, ended, result.truncated, result.info

    def spawn(self, same_state: bool = False, **options: Any) -> GemEpisodes:
        """Return another environment.

        Args:
            same_state: Whether the new environment continues this one's episode, with its own copy
                of the turns.
            **options: Options of `gym.make` that differ; not beside ``same_state``.

        Raises:
            UsageError: If options are given beside ``same_state``, or cannot be used.
        """
        if same_state and options:
            raise UsageError(
                f"spawn(same_state=True) takes no other options, got {', '.join(options)}: an "
                "episode keeps the settings it began with"
            )
        twin = GemEpisodes(self._factory.changed(**options) if options else self._factory)
        if same_state:
            twin._seeds.setstate(self._seeds.getstate())
            twin._episode = None if self._episode is None else self._episode.copy()
        return twin


def register(env_id: str, **options: Any) -> str:
    """Register an environment with GEM; returns GEM's id of it, such as ``kernelgym:Synthetic-L1``.

    Args:
        env_id: Id of the environment, such as ``Synthetic-L1-MultiTurn``.
        **options: Options of `gym.make`, such as ``evaluator``, a verdict service's address.

    Raises:
        UsageError: If an option is unknown or cannot be used.
    """
    name = f"kernelgym:{env_id}"
    gem.register(name, partial(GemEpisodes, EpisodeFactory(env_id, **options)))
    return name
