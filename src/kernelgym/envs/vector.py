"""Many episodes in one process, judged together: what `gymnasium.make_vec` gives.

Each step reads every answer, hands all kernels to the evaluator in one `evaluate_many`, and
records the verdicts. Observations are a tuple of texts.

Autoreset is SAME_STEP: a finished episode's slot holds the next problem at once, and its last
observation and info are under ``final_obs`` and ``final_info``. (Gymnasium's default, NEXT_STEP,
would throw away every second answer of a single-turn environment.) With DISABLED the caller
resets finished slots by ``reset(options={"reset_mask": mask})``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kernelgym.envs.kernel_env import RENDER_MODES, KernelEnv, with_budget
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rewards import RewardPreset
from kernelgym.types import Evaluator, Job, Kernel, Message, Verdict

Flags = NDArray[np.bool_]
_MODES = {mode.value: mode for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)}


class KernelVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], NDArray[Any]]):
    """`num_envs` environments whose kernels are judged as one batch.

    Args:
        num_envs: Number of episodes played side by side.
        autoreset_mode: ``SameStep`` (default) or ``Disabled``, or the `AutoresetMode`.
        **options: Options of `kernelgym.envs.kernel_env.KernelEnv`.

    Raises:
        UsageError: If an argument is unknown or does not fit the others.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        **options: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise UsageError(f"num_envs must be a whole number, at least 1, got {num_envs!r}")
        mode = getattr(autoreset_mode, "value", autoreset_mode)
        if mode not in _MODES:
            raise UnknownName(
                "autoreset mode", mode, _MODES, "NextStep would discard an answer per episode."
            )
        self.num_envs = num_envs
        self.autoreset_mode = _MODES[mode]
        first = KernelEnv(**options)
        # Slots are rendered together, after a batch; none of them prints by itself.
        self.render_mode, first.render_mode = first.render_mode, first.render_mode and "ansi"
        self._first = first
        self._spec: EnvSpec | None = None
        self.envs: tuple[KernelEnv, ...] = (
            first,
            *(first.sibling() for _ in range(num_envs - 1)),
        )
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": 1,
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._observations = [""] * num_envs
        self._over: Flags = np.zeros(num_envs, dtype=np.bool_)

    @property
    def reward(self) -> RewardPreset:
        """Preset that scores the turns, in each slot from its next episode on."""
        return self._first.reward

    @reward.setter
    def reward(self, which: str | RewardPreset) -> None:
        for env in self.envs:
            env.reward = which

    @property
    def memory_bytes(self) -> int | None:
        """Largest number of bytes that judging one kernel may take; None for no limit."""
        return self._first.memory_bytes

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's specification of the environment, with the memory budget that was fixed."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = with_budget(spec, self.memory_bytes)

    @property
    def messages(self) -> tuple[tuple[Message, ...], ...]:
        """Messages that the model reads next, for every slot; see `KernelEnv.messages`."""
        return tuple(env.messages for env in self.envs)

    @property
    def evaluator(self) -> Evaluator:
        """Evaluator that judges the kernels of all slots."""
        return self._first.evaluator

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begin episodes in every slot, or in those of a mask.

        Args:
            seed: Slot i gets ``seed + i``; a sequence gives one seed per slot.
            options: Options of `KernelEnv.reset`, shared by the slots; and ``reset_mask``, an array
                of `num_envs` bools. The mapping is not changed.

        Raises:
            UsageError: If an option is unknown or unusable.
        """
        if seed is None or isinstance(seed, int | np.integer):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise UsageError(
                f"reset(seed=...) needs {self.num_envs} seeds, one for each episode, "
                f"got {len(seeds)}"
            )
        chosen = dict(options or {})
        mask = self._mask(chosen.pop("reset_mask", None))
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask).tolist():
            self._observations[i], info = self.envs[i].reset(seed=seeds[i], options=chosen)
            self._over[i] = False
            infos = self._add_info(infos, info, i)
        self._show()
        return tuple(self._observations), infos

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Judge one answer per slot; if an answer is invalid, no answer is recorded.

        Args:
            actions: The models' texts; see `KernelEnv.step`.

        Raises:
            InvalidAction: If there is not one string per slot.
            ResetNeeded: If a slot's episode is over or was never begun.
        """
        actions = self._checked(actions)
        reads = [env.begin(action) for env, action in zip(self.envs, actions, strict=True)]
        verdicts = self._judge(reads)
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations = np.zeros(self.num_envs, dtype=np.bool_)
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        for i, (env, action, verdict) in enumerate(zip(self.envs, actions, verdicts, strict=True)):
            result = env.finish(action, verdict)
            self._observations[i], rewards[i], terminations[i], truncations[i], info = result
            over = bool(terminations[i] or truncations[i])
            if over and self.autoreset_mode is AutoresetMode.SAME_STEP:
                final = {"final_obs": self._observations[i], "final_info": info}
                infos = self._add_info(infos, final, i)
                self._observations[i], info = env.reset()
            else:
                self._over[i] = over
            infos = self._add_info(infos, info, i)
        self._show()
        return tuple(self._observations), rewards, terminations, truncations, infos

    def render(self) -> tuple[str, ...] | None:
        """Return one text per slot (``ansi``), or print them (``human``)."""
        if self.render_mode == "human":
            self._show()
            return None
        return tuple(env.render() or "" for env in self.envs)

    def close_extras(self, **_: Any) -> None:
        """Release the shared evaluator, if it was taken; one that was given stays open."""
        self._first.close()

    def _judge(self, reads: Sequence[Kernel | Verdict]) -> list[Verdict]:
        """Judge the kernels among `reads` in one call; verdicts stay as they are."""
        jobs = {
            i: Job(self.envs[i].problem, read)
            for i, read in enumerate(reads)
            if isinstance(read, Kernel)
        }
        judged = self.evaluator.evaluate_many(list(jobs.values())) if jobs else []
        found = dict(zip(jobs, judged, strict=True))
        return [read if isinstance(read, Verdict) else found[i] for i, read in enumerate(reads)]

    def _checked(self, actions: Any) -> list[str]:
        if isinstance(actions, str) or not hasattr(actions, "__len__"):
            raise InvalidAction(
                f"step() needs a list of {self.num_envs} texts, one for each episode, "
                f"got {type(actions)!r}"
            )
        if len(actions) != self.num_envs:
            raise InvalidAction(
                f"step() needs {self.num_envs} texts, one for each episode, got {len(actions)}"
            )
        if self._over.any():
            slots = np.flatnonzero(self._over).tolist()
            raise ResetNeeded(
                f"the episodes in slots {slots} are over; call reset with options="
                "{'reset_mask': mask}, or use autoreset_mode='SameStep'"
            )
        for env, action in zip(self.envs, actions, strict=True):
            env.check_action(action)
        return list(actions)  # as they are: an `Answer` keeps its mark

    def _mask(self, given: Any) -> Flags:
        if given is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        mask = np.asarray(given)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UsageError(
                f"reset_mask must be an array of {self.num_envs} bools with at least one True, "
                f"got shape {mask.shape}, dtype {mask.dtype}"
            )
        return mask

    def _show(self) -> None:
        if self.render_mode == "human":
            print("\n\n".join(env.render() or "" for env in self.envs))
