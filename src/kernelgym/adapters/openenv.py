"""`create_app`: the environments behind OpenEnv's server, one episode a WebSocket session.

- State lives on ``/ws``: a session resets (``seed``, ``problem_id``, or ``split`` and ``index``)
  and steps. Over plain HTTP, OpenEnv makes an environment a request: ``/step`` is answered 409.
- An action's required field is the model's answer; ``cut_off`` says that a limit of tokens ended
  it. An observation has the messages to append, and the same as one text; the reward is the turn's
  score, the metadata the step's info.
- A kernel that could not be judged is an error of the step, which clients raise, and no reward.
- The task API lists the suite's splits, as far as the environment plays them.

OpenEnv asks for no key; `kernelgym.serve.key_gate.KeyGate` puts the app behind keys.
"""

from __future__ import annotations

import asyncio
import functools
import html
from typing import Any

from gymnasium.error import ResetNeeded

from kernelgym.adapters.frameworks import check_framework
from kernelgym.adapters.live_episode import EpisodeFactory, LiveEpisode
from kernelgym.errors import JudgeError, UnknownName, UsageError
from kernelgym.types import Message

check_framework("openenv")

from fastapi import FastAPI, Request  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402
from openenv.core.env_server import http_server  # noqa: E402
from openenv.core.env_server import types as openenv_types  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # noqa: E402

_STATUSES = {ResetNeeded: 409, UsageError: 400, JudgeError: 503}
_RESET_OPTIONS = ("seed", "episode_id", "problem_id", "split", "index")


class KernelAction(openenv_types.Action):
    """A model's answer."""

    answer: str
    cut_off: bool = False


class KernelObservation(openenv_types.Observation):
    """What the model reads next, as messages to append and as one text."""

    text: str
    messages: list[dict[str, str]]


class KernelSessionEnvironment(Environment):
    """One session, which plays one episode after another."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, episodes: EpisodeFactory) -> None:
        super().__init__()
        self._episodes = episodes
        self._episode: LiveEpisode | None = None
        self._id: str | None = None

    async def reset_async(self, **options: Any) -> KernelObservation:
        """Begin an episode of ``problem_id``, of ``split`` and ``index``, or of a drawn problem."""
        for name in options:
            if name not in _RESET_OPTIONS:
                raise UnknownName("reset option", name, _RESET_OPTIONS)
        problem_id = options.get("problem_id")
        if "index" in options:
            problem_id = self.get_task(options.get("split", "all"), options["index"])["id"]
        self._episode = await self._episodes.begin_async(problem_id, options.get("seed"))
        self._id = options.get("episode_id")
        return _shown(self._episode.messages, metadata={"problem_id": self._episode.problem.id})

    async def step_async(self, action: KernelAction, **_: Any) -> KernelObservation:
        """Judge one answer.

        Raises:
            JudgeError: If the kernel could not be judged.
            ResetNeeded: If there is no episode, or it is over.
        """
        if self._episode is None:
            raise ResetNeeded("reset first: an episode lives in a session of /ws")
        result = await self._episode.answer(action.answer, action.cut_off)
        news = (Message("user", result.news),)
        return _shown(news, metadata=result.info, reward=result.reward, done=result.over)

    def reset(self, **options: Any) -> KernelObservation:
        """Do what `reset_async` does, in a thread without an event loop."""
        return asyncio.run(self.reset_async(**options))

    def step(self, action: KernelAction, **_: Any) -> KernelObservation:
        """Do what `step_async` does, for OpenEnv's web page, which steps in a thread."""
        return asyncio.run(self.step_async(action))

    @property
    def state(self) -> Any:
        """The episode's id, steps taken, problem, and why it ended."""
        if self._episode is None:
            return openenv_types.State()
        played = self._episode.trajectory
        told = {"problem_id": played.problem.id, "ended": played.ended}
        return openenv_types.State(episode_id=self._id, step_count=len(played.turns), **told)

    def list_splits(self) -> list[str]:
        """Return the names of the splits; ``all`` holds every problem."""
        return list(self._episodes.splits)

    def num_tasks(self, split: str) -> int:
        """Return the number of a split's problems."""
        return len(self._episodes.split(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return one problem of a split; raises `IndexError` beyond the last."""
        problem = self._episodes.split(split)[index]
        return {"id": problem.id, "index": index, "name": problem.name, "level": problem.level}

    def render_web(self, observation: dict[str, Any]) -> str | None:
        """Return HTML of the last kernel and the feedback on it."""
        if self._episode is None or not self._episode.trajectory.turns:
            return None
        turn = self._episode.trajectory.turns[-1]
        source = turn.reply.kernel.source if turn.reply.kernel else turn.action
        return "".join(f"<pre>{html.escape(part)}</pre>" for part in (source, str(turn.feedback)))


def _shown(told: tuple[Message, ...], **fields: Any) -> KernelObservation:
    plain = [{"role": each.role, "content": each.content} for each in told]
    return KernelObservation(text="\n\n".join(m.content for m in told), messages=plain, **fields)


def create_app(env_id: str, *, sessions: int = 16, **options: Any) -> FastAPI:
    """Return OpenEnv's server of the environment of an id, for so many sessions at the same time.

    Options are those of `gym.make`; raises `UsageError` if one is unknown or cannot be used.
    """
    episodes = EpisodeFactory(env_id, **options)
    episodes.check_append_only("an OpenEnv client")
    make = functools.partial(KernelSessionEnvironment, episodes)
    named = {"env_name": "kernelgym", "max_concurrent_envs": sessions}
    app = http_server.create_app(make, KernelAction, KernelObservation, **named)
    for kind, status in _STATUSES.items():
        app.add_exception_handler(kind, functools.partial(_refused, status))
    return app


async def _refused(status: int, request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status)
