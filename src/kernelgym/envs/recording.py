"""Wrappers that write every episode to a file, as `kernelgym.records.trajectories` describes it.

Contract: an episode is appended once, when it ends: solved, out of turns, or cut. One that was
begun and left (by a reset, or by closing the environment) is cut if a turn was played, and not
written if none was. Several environments, of several processes, may write to one file.

What a turn had read is recorded as a digest of the observation that went through the wrapper, so
put it outside of wrappers that change observations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorWrapper
from numpy.typing import NDArray

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.episodes.episode import Episode
from kernelgym.errors import UsageError
from kernelgym.records.observer_settings import observer_settings
from kernelgym.records.trajectories import EpisodeRecord, append_record
from kernelgym.types import Kernel, text_digest


def episode_record(
    env: KernelEnv,
    episode: Episode | None = None,
    *,
    start: Kernel | None = None,
    observations: Sequence[str] = (),
    retrieved: Sequence[tuple[str, ...]] = (),
    writer: str = "env",
) -> EpisodeRecord:
    """Return the record of an episode; one that has not ended is recorded as cut.

    Args:
        env: The environment it was played in.
        episode: The episode; the environment's current one if None.
        start: Kernel that the episode started from; ignored for the current episode.
        observations: Digest of the text that the model read before each turn.
        retrieved: Ids of the index entries that the model read before each turn.
        writer: Name of the program that played, such as ``env``.
    """
    if episode is None:
        episode, start = env.episode, env.start
    trajectory = episode.trajectory
    if not trajectory.ended:
        trajectory = dataclasses.replace(trajectory, ended="cut")
    return EpisodeRecord(
        trajectory,
        language=episode.language,
        device=env.device,
        ruleset=episode.ruleset.label,
        reward=episode.reward.name,
        stop_when=str(episode.stop_when),
        start=start.source if start else "",
        observer=observer_settings(env.observer),
        observations=tuple(observations),
        retrieved=tuple(retrieved) if any(retrieved) else (),
        writer=writer,
    )


class _Slot:
    """Recording of one environment's episode, until it is written."""

    def __init__(self, env: KernelEnv, path: Path, source: bool, writer: str) -> None:
        self.env, self.path, self.source, self.writer = env, path, source, writer
        self.episode: Episode | None = None
        self.start: Kernel | None = None
        self.read: list[str] = []
        self.retrieved: list[tuple[str, ...]] = []
        self.shown: object = ""
        self.entries: tuple[str, ...] = ()

    def begin(self, observation: object) -> None:
        self.episode, self.start = self.env.episode, self.env.start
        self.read, self.shown = [], observation
        self.retrieved, self.entries = [], self.env.retrieved

    def step(self, observation: object, over: bool) -> None:
        self.read.append(text_digest(self.shown) if isinstance(self.shown, str) else "")
        self.retrieved.append(self.entries)
        self.shown, self.entries = observation, self.env.retrieved
        if over:
            self.end()

    def end(self) -> None:
        episode, self.episode = self.episode, None
        if episode is None or not episode.turns:
            return
        record = episode_record(
            self.env,
            episode,
            start=self.start,
            observations=self.read,
            retrieved=self.retrieved,
            writer=self.writer,
        )
        append_record(self.path, record, source=self.source)


class RecordTrajectories(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """Append every episode of an environment to a JSONL file.

    Args:
        env: The environment, wrapped or not.
        path: The file; its folder must be there.
        source: Keep the problem's source in every line, so that it can be used without its suite.
        writer: Name of the program that plays, kept in the record.

    Raises:
        UsageError: If that is not an environment of kernelgym.
    """

    def __init__(
        self,
        env: gym.Env[str, str],
        path: str | Path,
        *,
        source: bool = True,
        writer: str = "env",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, path=str(path), source=source, writer=writer)
        super().__init__(env)
        core = env.unwrapped
        if not isinstance(core, KernelEnv):
            raise UsageError(f"trajectories are recorded of environments of kernelgym, not {env!r}")
        self._slot = _Slot(core, Path(path), source, writer)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; an earlier unfinished one is written as cut."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._slot.end()
        self._slot.begin(observation)
        return observation, info

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Judge one answer, and write the episode if it was the last."""
        result = self.env.step(action)
        observation, _, terminated, truncated, _ = result
        self._slot.step(observation, terminated or truncated)
        return result

    def close(self) -> None:
        """Write an unfinished episode as cut, and close the environment."""
        self._slot.end()
        super().close()


class RecordVectorTrajectories(
    VectorWrapper[tuple[str, ...], Sequence[str], NDArray[Any]], gym.utils.RecordConstructorArgs
):
    """Append every episode of every slot of a `KernelVectorEnv` to a JSONL file.

    Args:
        env: Vector environment from `gymnasium.make_vec`, wrapped or not.
        path: The file; its folder must be there.
        source: Keep the problem's source in every line.
        writer: Name of the program that plays, kept in the record.

    Raises:
        UsageError: If that is another vector environment. (Put `RecordTrajectories` around the
            environments in it.)
    """

    def __init__(
        self,
        env: gym.vector.VectorEnv[tuple[str, ...], Sequence[str], NDArray[Any]],
        path: str | Path,
        *,
        source: bool = True,
        writer: str = "env",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, path=str(path), source=source, writer=writer)
        super().__init__(cast("Any", env))  # Gymnasium types what it wraps as arrays
        core = env.unwrapped
        if not isinstance(core, KernelVectorEnv):
            raise UsageError(
                f"trajectories of a KernelVectorEnv are recorded, not of {env!r}; put "
                "RecordTrajectories around the environments in it"
            )
        self._slots = [_Slot(each, Path(path), source, writer) for each in core.envs]

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begin episodes; earlier unfinished ones are written as cut."""
        mask = (options or {}).get("reset_mask")
        result: Any = self.env.reset(seed=cast("Any", seed), options=cast("Any", options))
        begun = self._slots if mask is None else [self._slots[i] for i in np.flatnonzero(mask)]
        for slot, shown in zip(self._slots, result[0], strict=True):
            if slot in begun:
                slot.end()
                slot.begin(shown)
        return cast("tuple[tuple[str, ...], dict[str, Any]]", result)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Judge one answer per slot, and write the episodes that it ended."""
        result: Any = self.env.step(actions)
        observations, _, terminations, truncations, _ = result
        over = cast("list[bool]", (terminations | truncations).tolist())
        for slot, shown, ended in zip(self._slots, observations, over, strict=True):
            slot.step(shown, ended)
            if slot.episode is not slot.env.episode and not slot.env.episode.turns:
                slot.begin(shown)  # reset within the step
        return cast("tuple[Any, Any, Any, Any, dict[str, Any]]", result)

    def close(self, **kwargs: Any) -> None:
        """Write unfinished episodes as cut, and close the environments."""
        for slot in self._slots:
            slot.end()
        super().close(**kwargs)
