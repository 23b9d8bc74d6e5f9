"""A search on two GPUs: killed and resumed, and one GPU lost in the middle for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernelgym import LocalEvaluator
from kernelgym.devices import alone
from kernelgym_train.mcgs import Budget, SearchConfig
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.task import task_of_spec
from support.gpus import gpu_count

EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_softmax.json"
BUDGET = 6

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(gpu_count() < 2, reason="needs two GPUs"),
]


def spec(folder: Path) -> Path:
    """Write the example's spec with one shape into a folder, and return its path."""
    given = json.loads(EXAMPLE.read_text())
    given["contract"]["shapes"] = [{"axes": {"rows": 4096, "columns": 4096}}]
    (folder / "triton_softmax.py").write_text(EXAMPLE.with_suffix(".py").read_text())
    (folder / "spec.json").write_text(json.dumps(given))
    return folder / "spec.json"


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a search's log, so far."""
    logs = list((folder / "kernels").glob("*/events.jsonl"))
    text = logs[0].read_text(encoding="utf-8") if logs else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def judged(folder: Path) -> list[str]:
    return [row["key"] for row in events(folder) if row["event"] == "judged"]


def devices_of(folder: Path) -> set[str]:
    """Return the devices of all verdicts on variants."""
    files = folder.glob("kernels/*/variants/*/result.json")
    return {json.loads(each.read_text())["device"] for each in files}


def workers_of(pid: int, device: str = "") -> list[int]:
    """Return the worker processes that a process started, of one device or of all."""
    seen = "\0".join(f"{k}={v}" for k, v in alone(device, os.environ)[1].items()) if device else ""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_text()
            variables = (folder / "environ").read_text().split("\0")
        except OSError:  # it has ended
            continue
        if int(parent) == pid and "kernelgym.judge.worker" in command:
            if not seen or seen in variables:
                found.append(int(folder.name))
    return found


def test_search_killed_on_two_gpus_is_resumed_and_judges_no_kernel_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = [f"input={spec(tmp_path)}", "gpus=0,1", f"budget_builds={BUDGET}", "patience=0"]
    command = [sys.executable, "-m", "kernelgym_train", "--backend", "mcgs", *settings]
    command.append(f"outdir={out}")
    with subprocess.Popen(command, start_new_session=True) as running:
        limit = time.monotonic() + 100.0
        while len(judged(out)) < 3:
            assert running.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < limit, "fewer than three results in 100 s"
            time.sleep(0.05)
        left = workers_of(running.pid)
        os.killpg(running.pid, signal.SIGKILL)
    before = judged(out)
    assert left and 3 <= len(before) < BUDGET

    again = subprocess.run([*command, "resume=true"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr[-2000:]
    print(again.stdout[-500:])
    after = judged(out)
    assert after[: len(before)] == before and len(after) == len(set(after)) == BUDGET
    assert [row["event"] for row in events(out)].count("start") == 2
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert result["evaluations"] == BUDGET and result["stopped"] == "budget_builds"
    assert devices_of(out) == {"cuda:0", "cuda:1"}
    assert not [pid for pid in left if Path(f"/proc/{pid}").exists()], "workers outlived the search"


def test_search_that_loses_a_gpu_goes_on_with_the_other(tmp_path: Path) -> None:
    ended, lost = threading.Event(), list[int]()

    def kill() -> None:
        """Kill each worker that cuda:1 is given from now on."""
        while not ended.wait(0.05):
            for pid in workers_of(os.getpid(), "cuda:1"):
                lost.append(pid)
                os.kill(pid, signal.SIGKILL)

    killer, at = threading.Thread(target=kill, daemon=True), list[int]()

    def watch(state: SearchState) -> None:
        if state.evaluations >= 2 and not at:
            at.append(state.evaluations)
            killer.start()

    config = SearchConfig(budget=Budget(BUDGET), watch=watch, say=print)
    with LocalEvaluator(devices=["cuda:0", "cuda:1"], workers=2) as evaluator:
        try:
            result = search(task_of_spec(spec(tmp_path)), evaluator, tmp_path / "out", config)
        finally:
            ended.set()
        health = {each.device: each for each in evaluator.status.health}
    keys = judged(tmp_path / "out")
    print(f"lost {len(set(lost))} workers after evaluation {at}; {health}; {result['failures']}")
    assert set(lost), "a worker of cuda:1 was killed"
    assert len(keys) == len(set(keys)) == BUDGET == result["evaluations"]
    assert "unavailable" not in result["failures"]
    assert not health["cuda:0"].lost and health["cuda:0"].in_service
    assert health["cuda:1"].lost
    assert result["best"]["seed"], "the exported kernel was judged"
