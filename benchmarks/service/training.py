"""Does a training run get the same rewards if its verdict service is killed in the middle?

Run ``python -m kernelgym_train.demo --prepare --folder DIR --name demo``, then ``python -m
benchmarks.service.training --demo DIR/demo --work FOLDER [--out FILE]``: trains the demonstration's
model for five steps, judged through ``judge.url``, and once more while the server is killed -9 and
started again, twice, with jobs in flight. Both runs have one secret, from which the judge's inputs
follow; else a kernel that is right on some inputs alone may be judged differently. Exit code 1: a
reward differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.machine import machine
from benchmarks.service.servers import real
from kernelgym_train.demo.learning import learning_config
from kernelgym_train.launch.launch import train_run
from kernelgym_train.run.runlog import RunLog

SECRET = "7" * 64
KILLS_AT = (1, 3)
"""Numbers of finished steps after which the server is killed while it judges."""
OPEN_JOBS = 8
PORT = 8798


def train(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Train a run by the service; return each turn's status and reward by its place."""
    problems = options.demo / "problems" / "practice"
    settings = (f"env.suite={problems}", f"optimiser.steps={options.steps}")
    url = (f"judge.url=http://127.0.0.1:{PORT}", "sampling.max_new_tokens=75")
    config = learning_config(options.demo / "start", options.work / name, 0, (*settings, *url))
    create = RunLog.create

    def with_secret(folder: Path, *given: Any) -> RunLog:
        log = create(folder, *given)
        log.secret = SECRET
        return log

    with mock.patch.object(RunLog, "create", with_secret):
        train_run(config)
    found = {}
    for line in (options.work / name / "trajectories.jsonl").read_text().splitlines():
        episode = json.loads(line)
        for turn in episode["turns"]:
            verdict = turn["verdict"] or {"status": "none"}
            place = f"{episode['key']} {turn['index']}"
            found[place] = [verdict["status"], turn["score"]["total"]]
    return found


class KilledServer:
    """A server that is killed and started again, each time while it judges.

    Args:
        options: The command's options.
        run: Folder of the run.
    """

    def __init__(self, options: argparse.Namespace, run: Path) -> None:
        self._options, self._run, self._stack = options, run, contextlib.ExitStack()
        self.kills: list[int] = []
        """Number of open jobs at each kill."""

    def __enter__(self) -> KilledServer:
        self._process = self._stack.enter_context(server(self._options, "killed"))[0]
        threading.Thread(target=self._kill, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _kill(self) -> None:
        for step in KILLS_AT:
            while self._steps() < step or (left := self._open_jobs()) < OPEN_JOBS:
                time.sleep(0.1)
            self._process.kill()
            self._process.wait()
            self.kills.append(left)
            print(f"server killed with {left} open jobs", flush=True)
            time.sleep(1.0)
            self._process = self._stack.enter_context(server(self._options, "killed"))[0]

    def _steps(self) -> int:
        log = self._run / "metrics.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def _open_jobs(self) -> int:
        path = self._options.work / "state-killed" / "state.sqlite3"
        query = "SELECT COUNT(*) FROM jobs WHERE state IN ('queued', 'started')"
        with contextlib.closing(sqlite3.connect(path)) as db:
            return int(db.execute(query).fetchone()[0])


def server(options: argparse.Namespace, name: str) -> Any:
    """Return a context in which a server judges the demonstration's problems."""
    suite = str(options.demo / "problems" / "practice")
    settings = ("--workers", "2", "--no-timing", "--suites", suite)
    return real("--state", str(options.work / f"state-{name}"), *settings, port=PORT)


def main() -> int:
    """Train both runs and compare their rewards."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", type=Path, required=True, help="folder that was prepared")
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with server(options, "whole"):
        whole = train(options, "whole")
    with KilledServer(options, options.work / "killed") as killing:
        killed = train(options, "killed")
    different = [place for place in whole | killed if whole.get(place) != killed.get(place)]
    data = {
        "machine": machine("torch", "triton"),
        "steps": options.steps,
        "turns": len(whole),
        "reward": sum(row[1] for row in whole.values()) / len(whole),
        "kills": killing.kills,
        "different": different[:20],
    }
    print(json.dumps(data), flush=True)
    if options.out:
        options.out.write_text(json.dumps(data, indent=1) + "\n")
    return int(bool(different) or len(killing.kills) < len(KILLS_AT))


if __name__ == "__main__":
    sys.exit(main())
