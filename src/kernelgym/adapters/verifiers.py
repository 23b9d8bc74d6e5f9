"""The environments as a taskset and an env of verifiers (its v1 interface).

The distribution ``kernelgym-verifiers`` exports both, so that verifiers finds them by name::

    vf-eval kernelgym_verifiers -m MODEL --no-push --env.taskset.options '{"language": "cpp"}'

- A task is a problem, a rollout one episode, which the env plays as the user of the agent
  ``player``: one conversation with ``context="transcript"``, else a run a turn.
- The reward ``return`` is the discounted return of a run's first turn, by the option ``gamma``;
  metrics are ``solved``, ``correct``, ``turns``, ``score_1`` and on; the info has the verdicts.
- A kernel that could not be judged fails the episode with an ``EnvError``, which verifiers plays
  anew as ``--env.retries`` says; nothing is rewarded.
- The player is the ``null`` harness in a subprocess, which needs no account.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from kernelgym.adapters.frameworks import check_framework
from kernelgym.adapters.live_episode import EpisodeFactory, LiveEpisode
from kernelgym.evaluators.remote import RemoteEvaluator
from kernelgym.types import Message

check_framework("verifiers")

import verifiers.v1 as vf  # noqa: E402
from pydantic import Field, TypeAdapter  # noqa: E402
from verifiers.v1.harnesses.null import NullHarnessConfig  # noqa: E402
from verifiers.v1.types import Messages  # noqa: E402

_MESSAGES = TypeAdapter(Messages)


class KernelTasksetConfig(vf.TasksetConfig):
    """Settings of the episodes, under ``--env.taskset``."""

    env_id: str = "Synthetic-L1-MultiTurn"
    """Id of the environment."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of `gym.make` as JSON, such as ``{"language": "cpp", "problems": "1-20"}``."""
    evaluator: str = ""
    """Address of a verdict service; empty for a judge in this process."""
    patience_s: float = 600.0
    """Seconds without an answer of the verdict service after which an episode fails."""

    def episodes(self) -> EpisodeFactory:
        """Return the factory of the episodes."""
        if not self.evaluator:
            return EpisodeFactory(self.env_id, **self.options)
        judge = RemoteEvaluator(self.evaluator, patience_s=self.patience_s)
        return EpisodeFactory(self.env_id, **self.options, evaluator=judge)


class KernelTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    """A problem to be solved; `KernelRolloutEnvironment` scores it."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The problems that an environment draws."""

    def load(self) -> Iterator[KernelTask]:
        """Yield a task for each problem."""
        episodes = self.config.episodes()
        for problem in episodes.problems:
            shown = _prompt(episodes.first_messages(problem))
            data = vf.TaskData(id=problem.id, name=problem.id, **shown)
            yield KernelTask(data, self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    """Settings of a run: the taskset and the player."""

    player: vf.AgentConfig = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig()
    )


class KernelRolloutEnvironment(vf.Env[KernelEnvConfig]):
    """Plays episodes: after each answer, the player is sent the judge's feedback."""

    async def start(self) -> None:
        """Make the environments; the first episode starts the judge."""
        self._episodes = await asyncio.to_thread(self.config.taskset.episodes)

    async def stop(self) -> None:
        """End the judge."""
        if hasattr(self, "_episodes"):
            await asyncio.to_thread(self._episodes.close)

    async def run(self, task: KernelTask, agents: vf.Agents) -> None:
        """Play one episode.

        Raises:
            JudgeError: If a kernel could not be judged.
        """
        episode = await self._episodes.begin_async(task.data.id)
        if episode.is_append_only:
            traces = [await _in_one_run(task, agents, episode)]
        else:
            traces = [trace async for trace in _run_a_turn(task, agents, episode)]
        for index in range(min(len(traces), len(episode.trajectory.turns))):
            _record(traces[index], episode, index)


async def _in_one_run(task: KernelTask, agents: vf.Agents, episode: LiveEpisode) -> vf.Trace:
    """Play an episode as one conversation of verifiers; return its trace."""
    async with agents.player.interaction(task) as interaction:
        segment = await interaction.turn()
        while not segment.terminated:
            cut_off = interaction.trace.is_truncated
            result = await episode.answer(segment.last_reply, cut_off)
            if result.over:
                break
            segment = await interaction.turn(result.news)
    return interaction.trace


async def _run_a_turn(
    task: KernelTask, agents: vf.Agents, episode: LiveEpisode
) -> AsyncIterator[vf.Trace]:
    """Play an episode with a fresh conversation for each turn; yield the traces."""
    while True:
        data = task.data.model_copy(update=_prompt(episode.messages))
        trace = await agents.player.run(KernelTask(data, task.config))
        yield trace
        if not trace.ok or (await episode.answer(trace.last_reply, trace.is_truncated)).over:
            return


def _prompt(messages: tuple[Message, ...]) -> dict[str, Any]:
    """Return system prompt and prompt as task data of verifiers has them."""
    system, *shown = messages
    prompt = [{"role": each.role, "content": each.content} for each in shown]
    return {"system_prompt": system.content, "prompt": _MESSAGES.validate_python(prompt)}


def _record(trace: vf.Trace, episode: LiveEpisode, index: int) -> None:
    """Write the return of a turn to its trace, and the episode's metrics and verdicts."""
    played = episode.trajectory
    trace.record_reward("return", played.returns(episode.env.gamma, episode.env.returns)[index])
    trace.record_metric("solved", played.ended == "solved")
    trace.record_metric("correct", any(turn.verdict.correct for turn in played.turns))
    trace.record_metric("turns", len(played.turns))
    for number, score in enumerate(played.scores, 1):
        trace.record_metric(f"score_{number}", score)
    verdicts = [turn.verdict.to_dict() for turn in played.turns]
    trace.info["kernelgym"] = {"ended": played.ended, "verdicts": verdicts}
