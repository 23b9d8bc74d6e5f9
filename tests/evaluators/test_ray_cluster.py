"""`RayEvaluator` over real Ray clusters on this machine: nodes that die and join, and commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import RayEvaluator, Status, UsageError
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Job, Kernel
from support.process_tree import descendants, is_alive, wait_gone
from support.ray_judges import add_node, ray_cluster

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SCRIPTED = "support.ray_judges:ScriptedActor"
NODE = {"num_cpus": 2, "num_gpus": 1}


def job(number: int, says: str = "correct", seconds: float = 0.0) -> Job:
    source = f"NUMBER = {number}\n# takes: {seconds}\n# verdict: {says}\n"
    return Job(SAMPLE_PROBLEM, Kernel(source, "triton"))


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def cluster() -> Iterator[Any]:
    with ray_cluster(NODE, NODE) as found:
        yield found


def test_node_that_is_killed_loses_no_job_and_is_used_again_once_it_is_back(cluster) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with RayEvaluator(cluster.address, workers=2, made_by=SCRIPTED) as judge:
        assert signal.getsignal(signal.SIGTERM) is before
        assert judge.capabilities.workers == 4 and judge.capabilities.device == "cuda:0"
        says = ["correct", "wrong", "timeout"] * 20
        jobs = [job(number, each, 0.1) for number, each in enumerate(says)]
        verdicts = judge.evaluate_iter(jobs)
        found = [next(verdicts) for _ in range(5)]
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        found += verdicts
        assert sorted(index for index, _ in found) == list(range(60))
        assert [verdict.status for _, verdict in sorted(found, key=lambda pair: pair[0])] == says
        assert sum(each.lost for each in judge.status.health) >= 1
        wait_for(lambda: judge.capabilities.workers == 2)
        add_node(cluster, **NODE)
        wait_for(lambda: judge.capabilities.workers == 4)
        assert all(each.correct for each in judge.evaluate_many([job(n) for n in range(20)]))
        assert judge.submit(job(0, "nonsense")).exception(30) is not None
        assert judge.evaluate(*_pair(job(1)), seed="abc").seed == "abc"


def _pair(given: Job) -> tuple[Any, Any]:
    return given.problem, given.kernel


def test_head_that_is_gone_is_one_line_and_leaves_the_process_alive(cluster, caplog) -> None:
    address = cluster.address
    with RayEvaluator(address, made_by=SCRIPTED) as judge:
        assert judge.capabilities.workers == 8
        cluster.head_node.kill_gcs_server()
        assert judge.evaluate(*_pair(job(1))).correct  # actors and nodes live on for a while
        wait_for(lambda: not judge.status.health[0].in_service)
        waiting = judge.submit(job(2))
        assert judge.status.health[0].reason == f"the Ray head at {address} is gone"
        assert not waiting.done()
        assert [each.message.count("is gone") for each in caplog.records] == [1]
    assert waiting.result(30).status is Status.UNAVAILABLE
    with pytest.raises(UsageError, match=f"no Ray head answers at {address}"):
        RayEvaluator(address)


def test_mixed_cluster_is_refused_and_split_by_device_kind() -> None:
    kinds = [{**NODE, "resources": {f"accelerator_type:{kind}": 1}} for kind in ("H100", "A100")]
    with ray_cluster(*kinds) as cluster:
        made_by = "support.ray_judges:ActorOfTheNode"
        with RayEvaluator(cluster.address, made_by=made_by) as judge:
            with pytest.raises(UsageError, match=r"not alike.*device_kind 'A100'"):
                _ = judge.capabilities
        with RayEvaluator(cluster.address, made_by=made_by, device_kind="A100") as judge:
            assert judge.capabilities.provenance == ("accelerator_type:A100",)
            assert judge.capabilities.workers == 4
        with pytest.raises(UsageError, match=r"no node with 1 GPU and 0.001 accelerator_type:B200"):
            RayEvaluator(cluster.address, device_kind="B200")


def test_commands_judge_on_a_ray_cluster_and_no_process_is_left(tmp_path, monkeypatch) -> None:
    for name, source in (("kernel.py", SAMPLE_KERNELS["triton"].source), ("home/x", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with ray_cluster({"num_cpus": 2}) as cluster:
        nodes = descendants(os.getpid())
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        arguments = ("--problem", "Synthetic/L1/2", "--no-timing", "--json", "--evaluator", "ray")
        command = [sys.executable, "-m", "kernelgym", "check", str(tmp_path / "kernel.py")]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True)
        found = json.loads(done.stdout)
        assert done.returncode == 1 and found["valid"] and found["isolation"], done.stderr
        command = [sys.executable, "-m", "kernelgym", "serve", "--state", str(tmp_path / "state")]
        options = ("--port", "0", "--no-timing", "--workers", "ray", "--suites", "Synthetic")
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            address = server.stderr.readline().split()[-1]
            arguments = (*arguments[:-1], address)
            command = [sys.executable, "-m", "kernelgym", "check", str(tmp_path / "kernel.py")]
            done = subprocess.run([*command, *arguments], capture_output=True, text=True)
            assert json.loads(done.stdout)["valid"], done.stderr
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 143
        wait_for(lambda: not _judging(descendants(os.getpid()) - nodes))
    assert not list(Path(tmp_path / "home").glob(".ray*"))


def _judging(processes: set[int]) -> list[int]:
    """Return the processes that judge; Ray keeps idle ones of its own."""
    found = []
    for each in filter(is_alive, processes):
        try:
            if b"kernelgym" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(each)
        except OSError:
            continue
    return found


def test_local_cluster_ends_with_its_evaluator_and_writes_no_token(tmp_path) -> None:
    code = (
        "from kernelgym import RayEvaluator\n"
        "from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM\n"
        "with RayEvaluator('local', 'cpu', timing=False) as judge:\n"
        "    print(judge.evaluate(SAMPLE_PROBLEM, SAMPLE_KERNELS['triton']).status)\n"
        "    print(judge.capabilities.workers)\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    before = descendants(os.getpid())
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout.split()[0] == "correct", done.stderr
    wait_gone(descendants(os.getpid()) - before)
    assert not (tmp_path / ".ray").exists()
