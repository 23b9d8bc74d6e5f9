"""`kernelgym serve` and `RemoteEvaluator` with real verdicts on the CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import gymnasium as gym
import pytest

from kernelgym import RemoteEvaluator, Status
from kernelgym.cli import main
from kernelgym.languages import LANGUAGES
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM, reply
from kernelgym.types import Kernel


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "Sample").mkdir()
    (folder / "Sample" / "1_sample.py").write_text(SAMPLE_PROBLEM.source)
    arguments = ("--state", str(folder / "state"), "--port", "0", "--no-timing")
    suites = ("--suites", "Synthetic", str(folder / "Sample"))
    command = [sys.executable, "-m", "kernelgym", "serve", *arguments, *suites]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        yield server.stderr.readline().split()[-1]
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 143
    finally:
        server.kill()
        server.communicate()


def test_verdicts_are_those_of_a_local_judge(address) -> None:
    with RemoteEvaluator(address) as judge:
        assert "triton" in judge.capabilities.languages and not judge.capabilities.timed
        problem = get_problem("Synthetic/L1/2")
        found = judge.evaluate(problem, Kernel(LANGUAGES["triton"].sample, "triton"))
        assert found.valid and not found.correct and found.isolation


def test_environment_is_made_of_an_address_and_its_spec_is_json(address) -> None:
    env = gym.make("Synthetic-L1-SingleTurn", problems=2, evaluator=address)
    assert address in env.spec.to_json()
    env.reset(seed=1)
    info = env.step(reply(SAMPLE_BROKEN["triton"]))[4]
    assert info["status"] not in (Status.UNAVAILABLE, Status.NO_KERNEL)
    envs = gym.make_vec("Synthetic-L1-SingleTurn", num_envs=2, problems=2, evaluator=address)
    envs.reset(seed=1)
    infos = envs.step([reply(SAMPLE_KERNELS["triton"])] * 2)[4]
    assert all(infos["final_info"]["status"] != "unavailable")


def test_commands_judge_by_a_service(address, tmp_path, capsys) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(SAMPLE_KERNELS["triton"].source)
    by = ("--no-timing", "--evaluator", address)
    code = main(["check", str(kernel), "--problem", "Synthetic/L1/2", "--json", *by])
    found = json.loads(capsys.readouterr().out)
    assert code == 1 and found["valid"] and found["isolation"]
    row = {"id": "a", "problem": "Synthetic/L1/2", "kernel": "kernel.py"}
    rows = [row, row | {"id": "b", "ruleset": "kernelbench"}]
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    files = ("--batch", str(tmp_path / "jobs.jsonl"), "--out", str(tmp_path / "out.jsonl"))
    assert main(["check", *files, *by]) == 0
    judged = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["ruleset"].partition("@")[0] for each in judged] == ["strict", "kernelbench"]
    assert all(each["status"] == "wrong" for each in judged)
    task = ("--policy", "scripted", "--suite", "Synthetic", "--level", "1", "--limit", "1")
    out = tmp_path / "run"
    code = main(["eval", *task, "--out", str(out), *by])
    assert code == 0 and any(out.rglob("*.jsonl"))
