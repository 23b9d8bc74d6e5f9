"""verifiers' own program `vf-eval` plays episodes against a scripted model's server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.chat_server import chat_server
from support.scripted_answers import (
    ENV,
    OPTIONS,
    PROBLEMS,
    ScriptedModel,
    essentials,
    expected,
    says,
)
from support.serve_process import serving

pytestmark = pytest.mark.framework("verifiers")

TESTS = Path(__file__).parents[1]
IDS = [problem.id for problem in PROBLEMS.values()]


def run_vf_eval(folder: Path, *arguments: str) -> Any:
    """Run verifiers' program; returns it, finished, and the episodes that it wrote."""
    programs = Path(sys.executable).parent  # `uv`, which starts the players, lies there too
    command = [programs / "vf-eval", *arguments, "-o", str(folder), "--no-rich"]
    search = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "SCRIPTED_KEY": "none", "PATH": search}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, env=environment, cwd=folder.parent
    )
    files = sorted(folder.rglob("traces.jsonl"))
    lines = files[0].read_text().splitlines() if files else []
    return done, [json.loads(line) for line in lines]


def evaluated(server: Any, judge: str, folder: Path, *more: str, **options: Any) -> Any:
    """Run `vf-eval` on our taskset; returns the finished program and the episodes."""
    command = ["kernelgym_verifiers", "-m", "kernel-writer", "--no-push", *more]
    command += ["--client.base-url", server.url, "--client.api-key-var", "SCRIPTED_KEY"]
    command += ["--env.taskset.env-id", ENV, "--env.taskset.evaluator", judge]
    command += ["--env.taskset.options", json.dumps({**OPTIONS, **options})]
    return run_vf_eval(folder, *command, "--env.taskset.patience-s", "2")


def test_vf_eval_gives_the_scores_of_play_episode(tmp_path: Path) -> None:
    """One request fails with a 500, which verifiers' client repeats."""
    model = ScriptedModel()
    with chat_server(reply=model.reply) as server, serving(tmp_path / "state") as (_, judge):
        done, episodes = evaluated(server, judge, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert model.failures["server_fails_once"] == 1
    assert {episode["task"]["data"]["id"] for episode in episodes} == set(IDS)
    wanted = expected()
    for episode in episodes:
        (trace,) = episode["traces"]
        played = wanted[episode["task"]["data"]["id"]]
        assert episode["ok"] and not episode["errors"]
        assert played_by(trace) == essentials(played)
        assert trace["rewards"]["return"]["score"] == pytest.approx(played.returns()[0])
        assert trace["metrics"]["solved"] == float(played.ended == "solved")


def played_by(trace: Any) -> list[tuple[str, float]]:
    """Return status and score of each turn."""
    verdicts = trace["info"]["kernelgym"]["verdicts"]
    scores = [trace["metrics"][f"score_{number}"] for number in range(1, len(verdicts) + 1)]
    return [(each["status"], score) for each, score in zip(verdicts, scores, strict=True)]


def test_context_that_rewrites_messages_is_played_as_one_run_a_turn(tmp_path: Path) -> None:
    """Each run is rewarded by the return of its own turn."""
    asked: list[Any] = []

    def reply(body: Any) -> str:
        asked.append([message["role"] for message in body["messages"]])
        return says("wrong" if len(asked) == 1 else "correct")

    with chat_server(reply=reply) as server, serving(tmp_path / "state") as (_, judge):
        done, (episode,) = evaluated(server, judge, tmp_path / "out", problems="1", context="last")
    assert done.returncode == 0 and episode["ok"], done.stderr
    assert [played_by(trace) for trace in episode["traces"]] == [
        essentials(expected()[PROBLEMS["wrong_then_right"].id])
    ] * 2
    rewards = [trace["rewards"]["return"]["score"] for trace in episode["traces"]]
    assert rewards == pytest.approx(expected()[IDS[0]].returns())
    assert len(asked) == 2 and "assistant" not in asked[0]


def test_judge_killed_in_mid_episode_is_an_error_and_no_reward(tmp_path: Path) -> None:
    """verifiers plays the episode anew as often as it is told."""
    with serving(tmp_path / "state") as (process, judge):

        def reply(body: Any) -> str:
            if any(message["role"] == "assistant" for message in body["messages"]):
                process.kill()
            return says("wrong", len(body["messages"]))

        with chat_server(reply=reply) as server:
            more = ("--env.retries.max-retries", "1")
            _, (episode,) = evaluated(server, judge, tmp_path / "out", *more, problems="1")
    assert not episode["ok"]
    assert [error["type"] for error in episode["errors"]].count("EnvError") == 2
    assert all("no fault of the kernel" in error["message"] for error in episode["errors"])
    assert all(not trace["rewards"] for trace in episode["traces"])


TOML = """
model = "kernel-writer"
push = false
client = {{ base_url = "{model}", api_key_var = "SCRIPTED_KEY" }}
[env.taskset]
id = "openenv"
base_url = "{openenv}"
resets = [{resets}]
[env.player]
harness = {{ id = "null" }}
runtime = {{ type = "subprocess" }}
"""


def test_openenv_taskset_of_verifiers_plays_on_our_openenv_server(tmp_path: Path) -> None:
    """Its client is of an older openenv than the server, which runs where that one is."""
    python = os.environ["KERNELGYM_PYTHON_BESIDE"]
    program = [python, str(TESTS / "support/openenv_server.py")]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    cases = ("wrong_then_right", "malformed")
    ids = [PROBLEMS[case].id for case in cases]
    with (
        subprocess.Popen(program, text=True, env=environment, **pipes) as openenv,
        chat_server(reply=ScriptedModel().reply) as server,
    ):
        url = openenv.stdout.readline().strip()
        resets = ", ".join(f'{{ problem_id = "{each}" }}' for each in ids)
        file = tmp_path / "run.toml"
        file.write_text(TOML.format(model=server.url, openenv=url, resets=resets))
        done, episodes = run_vf_eval(tmp_path / "out", "@", str(file))
        openenv.stdin.close()
    assert done.returncode == 0 and all(episode["ok"] for episode in episodes), done.stderr
    found = {
        episode["task"]["data"]["reset"]["problem_id"]: episode["traces"][0]["rewards"]
        for episode in episodes
    }
    wanted = expected()
    assert set(found) == set(ids)
    for name, rewards in found.items():
        assert rewards["openenv_reward"]["score"] == pytest.approx(sum(wanted[name].scores))


def test_example_scores_a_correct_kernel(tmp_path: Path) -> None:
    """The real judge judges its two kernels."""
    command = [sys.executable, str(TESTS.parent / "examples/15_verifiers.py")]
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "PATH": search},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("solved 1.0"), done.stdout
