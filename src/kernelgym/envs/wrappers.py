"""Gymnasium wrappers around the environments.

`DiscountedReturn` changes what a trainer is paid, and nothing of the episode itself. What a turn is
worth is a `kernelgym.rewards.RewardPreset`'s business, and what the model reads the
`kernelgym.prompts.observer.Observer`'s: `RetrievalObservation` installs a part there, and never
edits an observation, so that conversations, records and token counts see the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import UsageError
from kernelgym.retrieval.prompt_part import Retrieval, ready_retrieval
from kernelgym.types import discounted_returns, return_variant


class DiscountedReturn(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """Pay the episode's discounted return as reward.

    The plain sum of an episode's rewards is then the discounted return of its first turn,
    ``info["turn_returns"][0]``; so a trainer that knows nothing of discounting, or only looks at
    the sum over an episode, optimises that return. A step's reward is what its turn added to it:

    - ``sum``: ``gamma ** t * s_t``;
    - ``max``: by how much ``gamma ** t * s_t`` exceeds the most that an earlier turn has earned, or
      0; after a penalty, also what makes up for it.

    When the episode ends solved, the last step's reward also holds what its score is worth until
    the turn budget is used up, as in `kernelgym.types.Trajectory.returns`. An episode that
    something outside cuts off (a ``TimeLimit``, a verdict ``unavailable``) has paid for its turns.

    Per-turn credit is lost that way: every turn of an episode is paid for the whole of it. Trainers
    that can tell turns apart should leave rewards as they are and use ``info["turn_returns"]``.

    Rewards are read from the environment inside, so wrappers that change them go inside too. In a
    vector environment it goes into each slot:
    ``gym.make_vec(id, 8, vectorization_mode="sync", wrappers=[DiscountedReturn])``.

    Args:
        env: An environment of an id of ours, wrapped or not.
        gamma: Discount factor in [0, 1]; the environment's if None.
        returns: ``sum`` or ``max``; the environment's if None.

    Raises:
        UsageError: If `env` is none of ours, or an argument is out of range.
    """

    def __init__(
        self,
        env: gym.Env[str, str],
        gamma: float | None = None,
        returns: str | None = None,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, returns=returns)
        gym.Wrapper.__init__(self, env)
        for name in ("gamma", "returns", "max_turns"):
            if not env.has_wrapper_attr(name):
                raise UsageError(
                    f"DiscountedReturn needs a kernelgym environment, with {name!r}; got {env}"
                )
        self.gamma: float = env.get_wrapper_attr("gamma") if gamma is None else gamma
        if not isinstance(self.gamma, int | float) or not 0.0 <= self.gamma <= 1.0:
            raise UsageError(f"gamma must be a number in [0, 1], got {gamma!r}")
        self.returns = return_variant(
            env.get_wrapper_attr("returns") if returns is None else returns
        )
        self._rewards: list[float] = []
        self._paid = 0.0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; nothing is paid of it yet."""
        self._rewards, self._paid = [], 0.0
        return self.env.reset(seed=seed, options=None if options is None else dict(options))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a step; the reward is what it added to the return of the episode's first turn."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._rewards.append(float(reward))
        solved = terminated and info.get("ended") == "solved"
        horizon = self.env.get_wrapper_attr("max_turns") if solved else None
        so_far, *_ = discounted_returns(
            self._rewards, self.gamma, horizon=horizon, variant=self.returns
        )
        added, self._paid = so_far - self._paid, so_far
        return observation, added, terminated, truncated, info


class RetrievalObservation(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """Show solved problems like the one asked in the prompt.

    It does what the option ``retrieval`` of `gymnasium.make` does. In a vector environment it goes
    into each slot: ``gym.make_vec(id, 8, vectorization_mode="sync", wrappers=[...])``; our own
    vector environment takes the option.

    Args:
        env: An environment of an id of ours, wrapped or not.
        index: Name of an index.
        k: Most entries that are shown.
        **settings: Other fields of `kernelgym.retrieval.prompt_part.Retrieval`, such as ``tokens``.

    Raises:
        UsageError: If `env` is none of ours or has retrieval already, or an argument is unknown or
            does not fit the environment.
    """

    def __init__(
        self, env: gym.Env[str, str], index: str = "synthetic", k: int = 3, **settings: Any
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, index=index, k=k, **settings)
        gym.Wrapper.__init__(self, env)
        core = env.unwrapped
        if not isinstance(core, KernelEnv):
            raise UsageError(f"RetrievalObservation needs a kernelgym environment, got {env}")
        parts = core.observer.parts
        if any(isinstance(part, Retrieval) for part in parts):
            raise UsageError(
                "the environment shows retrieved examples already; leave the wrapper or the option "
                "'retrieval' out"
            )
        wanted = {"index": index, "k": k, **settings}
        part = ready_retrieval(wanted, core.language, core.device)
        core.observer = dataclasses.replace(core.observer, parts=(*parts, part))
