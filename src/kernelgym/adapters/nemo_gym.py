"""`KernelServer`: the environments as a resources server of NeMo Gym, for its ``gymnasium_agent``.

`write_server` writes the folder that NeMo Gym's programs start it from. Contract:

- a session is an episode. ``reset`` returns the problem, each ``step`` the feedback on an answer;
  the agent appends both to the conversation and adds the scores of the turns up;
- a step is awaited, so one server plays many sessions at once, and their kernels are judged
  together;
- an answer that ended at the limit of tokens is read as cut off;
- a kernel that could not be judged is an error of the step, in the server's log and as a 500. The
  rollout has no reward: NeMo Gym's collection of rollouts stops, keeps those it has, and plays the
  others with ``--resume``;
- a step of a session without an episode is a 409. Sessions live in the server's process, so it has
  one worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelgym.adapters.frameworks import check_framework
from kernelgym.adapters.live_episode import EpisodeFactory, LiveEpisode
from kernelgym.errors import JudgeError, UsageError
from kernelgym.whole_file import write_whole

check_framework("nemo-gym")

from fastapi import HTTPException  # noqa: E402
from nemo_gym.base_resources_server import BaseResourcesServerConfig  # noqa: E402
from pydantic import Field  # noqa: E402
from resources_servers.gymnasium import GymnasiumServer, extract_text  # noqa: E402

NAME = "kernelgym"
"""Name of the server in NeMo Gym's configuration."""


class KernelServerConfig(BaseResourcesServerConfig):
    """The server's block of NeMo Gym's configuration."""

    env_id: str
    """Id of the environment, such as ``Synthetic-L1-MultiTurn``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of `gym.make`, such as ``evaluator``, a verdict service's address."""


class KernelServer(GymnasiumServer):
    """Resources server whose sessions are episodes."""

    config: KernelServerConfig
    _factory: EpisodeFactory

    def model_post_init(self, context: Any) -> None:
        """Make the environment, so that a wrong option ends the server at its start."""
        super().model_post_init(context)
        self._factory = EpisodeFactory(self.config.env_id, **self.config.options)
        self._factory.check_append_only("NeMo Gym")

    async def reset(
        self, metadata: dict[str, Any], session_id: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; returns the user's first message and the reset's info.

        Args:
            metadata: The row's other fields: ``problem_id``, or none to draw a problem.
            session_id: NeMo Gym's name of the rollout.
        """
        try:
            episode = await self._factory.begin_async(metadata.get("problem_id"))
        except UsageError as error:
            raise HTTPException(422, str(error)) from error
        self.session_state[session_id] = episode
        return episode.messages[-1].content, episode.start_info

    async def step(
        self, action: Any, metadata: dict[str, Any], session_id: str | None = None
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        """Take an answer, awaiting its verdict; returns what Gymnasium's ``step`` returns.

        Args:
            action: The model's response.
            metadata: The row's other fields; not read.
            session_id: NeMo Gym's name of the rollout.
        """
        episode: LiveEpisode | None = self.session_state.get(session_id)
        if episode is None:
            raise HTTPException(409, "this session has no episode: call /reset before /step")
        why = action.incomplete_details
        cut_off = why is not None and why.reason == "max_output_tokens"
        try:
            result = await episode.answer(extract_text(action), cut_off)
        except JudgeError:
            await self.close_session(session_id)
            raise  # NeMo Gym logs it, and answers with a 500
        ended = result.over and not result.truncated
        return result.news, result.reward, ended, result.truncated, result.info


def write_server(folder: Path, env_id: str, **options: Any) -> Path:
    """Write NeMo Gym's folder of the server; returns the path of the configuration in it.

    It holds program, requirements, configuration of server and agent, and a row for each problem.

    Args:
        folder: Folder in which NeMo Gym's programs are called.
        env_id: Id of the environment, such as ``Synthetic-L1-MultiTurn``.
        **options: Options of `gym.make`, plain data.

    Raises:
        UsageError: If an option is unknown or cannot be used.
    """
    factory = EpisodeFactory(env_id, **options)
    factory.check_append_only("NeMo Gym")
    place = Path("resources_servers") / NAME
    rows_path = place / "data" / "problems.jsonl"
    program = {"entrypoint": "app.py"}
    agent = {"type": "responses_api_agents", "name": f"{NAME}_agent"}
    server = program | {"domain": "coding", "env_id": env_id, "options": options}
    player = program | {
        "resources_server": {"type": "resources_servers", "name": NAME},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "max_steps": factory.max_turns,
        "datasets": [{"name": "problems", "type": "example", "jsonl_fpath": str(rows_path)}],
    }
    config_path = place / "configs" / f"{NAME}.yaml"
    blocks = {
        NAME: {"resources_servers": {NAME: server}},
        agent["name"]: {"responses_api_agents": {"gymnasium_agent": player}},
    }
    files = {
        place / "app.py": "from kernelgym.adapters.nemo_gym import KernelServer\n\n"
        'if __name__ == "__main__":\n    KernelServer.run_webserver()\n',
        place / "requirements.txt": "kernelgym[nemo-gym]\n",
        config_path: json.dumps(blocks, indent=2) + "\n",  # YAML reads JSON
        rows_path: "".join(json.dumps(row) + "\n" for row in _rows(factory, agent)),
    }
    for path, text in files.items():
        write_whole(folder / path, text)
    return folder / config_path


def _rows(factory: EpisodeFactory, agent: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield NeMo Gym's row of each problem, without its last message, which `reset` returns."""
    for problem in factory.problems:
        asked = [asdict(message) for message in factory.first_messages(problem)[:-1]]
        prompt = {"responses_create_params": {"input": asked}}
        yield prompt | {"problem_id": problem.id, "agent_ref": agent}
