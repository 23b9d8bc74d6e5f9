"""NeMo Gym's programs start the servers and collect rollouts; the model's server is scripted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from support.chat_server import chat_server
from support.scripted_answers import ENV, OPTIONS, ScriptedModel, expected
from support.serve_process import serving

pytestmark = pytest.mark.framework("nemo-gym")

MODEL = "responses_api_models/vllm_model"
"""NeMo Gym's model server for servers of chat completions."""
SERVERS = ("resources_servers/kernelgym", "responses_api_agents/gymnasium_agent", MODEL)
LIMIT_S = 300  # Ray alone takes a minute to start on a host with other work
IMPATIENT = """
from kernelgym import RemoteEvaluator
from kernelgym.adapters.nemo_gym import KernelServer


class Impatient(KernelServer):
    def model_post_init(self, context):
        options = self.config.options
        options["evaluator"] = RemoteEvaluator(options["evaluator"], patience_s=2)
        super().model_post_init(context)


if __name__ == "__main__":
    Impatient.run_webserver()
"""
"""The server's program, but with a judge that is waited for two seconds and not ten minutes."""


@dataclass(frozen=True)
class Started:
    """NeMo Gym's servers, running."""

    folder: Path
    """Folder in which its programs are called."""
    environment: dict[str, str]
    model: ScriptedModel
    judge: subprocess.Popen[str]
    port: int
    """Port of the judge."""

    def collected(self, name: str, *more: str) -> tuple[int, str]:
        """Collect a rollout of each problem; returns the exit code and what was printed."""
        rows = self.folder / "resources_servers/kernelgym/data/problems.jsonl"
        program = [Path(sys.executable).with_name("gym"), "eval", "run", "--no-serve"]
        settings = ["--input", rows, "--output", self.folder / f"{name}.jsonl"]
        done = subprocess.run(
            [*program, "--agent", "kernelgym_agent", *settings, *more],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        return done.returncode, done.stdout

    def rollouts(self, name: str) -> list[dict[str, Any]]:
        """Return the rollouts that were written."""
        written = (self.folder / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in written.splitlines()]


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Started]:
    """Start the servers with `gym env start`; each finds this environment as its own."""
    from kernelgym.adapters.nemo_gym import write_server

    model = ScriptedModel()
    with (
        serving(folder / "judge") as (judge, url),
        chat_server(reply=model.reply) as chat,
        tempfile.TemporaryDirectory(dir="/tmp") as short,  # Ray's sockets need a short path
        (folder / "servers.log").open("w+") as log,
    ):
        write_server(folder, ENV, **OPTIONS, evaluator=url)
        for server in SERVERS:
            (folder / server).mkdir(parents=True, exist_ok=True)
            (folder / server / ".venv").symlink_to(sys.prefix)
        (folder / SERVERS[0] / "app.py").write_text(IMPATIENT)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_ADDRESS": "local",
            "RAY_TMPDIR": short,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        program = [Path(sys.executable).with_name("gym"), "env", "start"]
        servers = ["--resources-server", "kernelgym", "--model-type", "vllm_model"]
        asked = ["--model", "kernel-writer", "--model-url", chat.url, "--model-api-key", "none"]
        process = subprocess.Popen(
            [*program, *servers, *asked, "+skip_venv_if_present=true"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            given_up = time.monotonic() + LIMIT_S
            while "3 / 3 servers ready" not in (told := (folder / "servers.log").read_text()):
                assert process.poll() is None and time.monotonic() < given_up, told[-4000:]
                time.sleep(0.5)
            yield Started(folder, environment, model, judge, int(url.rpartition(":")[2]))
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30.0)
            process.kill()
            process.wait()


def test_rollouts_have_the_scores_of_play_episode_and_a_killed_judge_gives_none(
    tmp_path: Path,
) -> None:
    """One start of the servers, which takes most of the time."""
    with started(tmp_path) as nemo:
        code, told = nemo.collected("first")
        assert code == 0, told[-4000:]
        wanted = {name: list(played.scores) for name, played in expected().items()}
        rollouts = nemo.rollouts("first")
        found = {each["info"]["problem_id"]: each["info"]["turn_scores"] for each in rollouts}
        assert found == wanted
        assert [each["reward"] for each in rollouts] == pytest.approx(
            [sum(each["info"]["turn_scores"]) for each in rollouts]
        )
        assert all(each["terminated"] and not each["truncated"] for each in rollouts)
        assert nemo.model.failures["server_fails_once"] == 1
        nemo.judge.kill()
        code, told = nemo.collected("second", "--concurrency", "1")
        assert code != 0 and nemo.rollouts("second") == []
        assert "no fault of the kernel" in (tmp_path / "servers.log").read_text()
        with serving(tmp_path / "other judge", port=nemo.port):
            code, told = nemo.collected("second", "--resume")
        assert code == 0, told[-4000:]
        again = nemo.rollouts("second")
        assert {each["info"]["problem_id"]: each["info"]["turn_scores"] for each in again} == wanted


def test_options_are_checked_when_the_folder_is_written(tmp_path: Path) -> None:
    from kernelgym.adapters.nemo_gym import write_server

    with pytest.raises(UsageError, match="transcript"):
        write_server(tmp_path, ENV, context="last")
    with pytest.raises(UsageError, match="max_turns"):
        write_server(tmp_path, ENV, max_turns=0)
    assert not list(tmp_path.iterdir())


def test_session_without_an_episode_is_refused() -> None:
    import asyncio
    from unittest.mock import MagicMock

    from fastapi import HTTPException
    from nemo_gym.server_utils import ServerClient

    from kernelgym.adapters.nemo_gym import KernelServer, KernelServerConfig

    block = {"host": "", "port": 0, "entrypoint": "", "name": ""}
    config = KernelServerConfig(**block, env_id=ENV, options=dict(OPTIONS))
    server = KernelServer(config=config, server_client=MagicMock(spec=ServerClient))
    with pytest.raises(HTTPException) as refused:
        asyncio.run(server.step(MagicMock(), {}, "unknown"))
    assert refused.value.status_code == 409
    with pytest.raises(HTTPException) as refused:
        asyncio.run(server.reset({"problem_id": "Synthetic/L1/9999"}, "one"))
    assert refused.value.status_code == 422 and "9999" in refused.value.detail


def test_example_writes_the_folder(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples/19_nemo_gym.py"
    with serving(tmp_path / "judge") as (_, url):
        command = [sys.executable, str(example), url]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path
        )
    assert done.returncode == 0 and "8 problems" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "runs/nemo-gym/resources_servers/kernelgym/app.py").is_file()
