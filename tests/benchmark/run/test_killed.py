"""A run against a faulty server that is killed and gone on with ends as an unbroken one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark.run.generations import AnswerKey, request_seed
from support.chat_server import ISSUE, ChatServer, chat_server
from support.evals import lines_of

TESTS = Path(__file__).parents[2]
SMALL = {"suite": "Synthetic", "level": 1, "limit": 5, "samples": 2, "turns": 2}
WHOLE = {"suite": "Synthetic", "level": 1, "limit": 20, "samples": 4, "turns": 3}


class Runs:
    """Starts runs in processes of their own."""

    def __init__(self, process: subprocess.Popen[str], **given: Any) -> None:
        self._process, self._given = process, given | {"timeout_s": 1.0}

    def start(self, out: Path) -> int:
        assert self._process.stdin is not None
        given = {**self._given, "out": str(out), "concurrency": 8}
        print(json.dumps(given), file=self._process.stdin, flush=True)
        return self._line()

    def status(self) -> int:
        """Wait for the run's end."""
        return self._line()

    def _line(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def runs(server: ChatServer, task: dict[str, Any], judged: bool) -> Iterator[Runs]:
    path = os.pathsep.join([str(TESTS), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-m", "support.eval_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as process:
        try:
            yield Runs(process, url=server.url, task=task, judged=judged)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def seeds_on_disk(folder: Path) -> set[int]:
    return {
        request_seed(0, AnswerKey.of(row)) % (1 << 31) for row in lines_of(folder, "generations")
    }


def told(folder: Path) -> list[Any]:
    """Return what must not depend on a kill: problems, prompts, answers, statuses, scores."""
    return [
        (
            *(row["key"], row["problem"]["digest"], row["ended"]),
            [
                (t["observation"], t["action"], t["verdict"]["status"], t["score"])
                for t in row["turns"]
            ],
        )
        for row in lines_of(folder, "trajectories")
    ]


def check_killed_run(task: dict[str, Any], folder: Path, chosen: int, judged: bool = False) -> None:
    whole, part = folder / "whole", folder / "part"
    with chat_server(ISSUE, seed=chosen) as server, runs(server, task, judged) as started:
        started.start(whole)
        assert started.status() == 0
        total = len(server.answered)
        assert len({what for _, what in server.log}) > 2, "faults of two kinds"
        server.log.clear()
        lost: set[int] = set()
        for moment in sorted(random.Random(chosen).sample(range(1, total), 3)):
            child = started.start(part)
            begun = time.monotonic()
            while len(set(server.answered)) < moment and time.monotonic() < begun + 60:
                time.sleep(0.001)
            os.kill(child, signal.SIGKILL)
            assert started.status() == signal.SIGKILL
            lost |= {seed for seed in server.answered if seed is not None} - seeds_on_disk(part)
        started.start(part)
        assert started.status() == 0
        again = {seed for seed, count in Counter(server.answered).items() if count > 1}
        assert again <= lost and len(lost) <= 3 * 8, "an answer was asked for again"
        assert set(server.answered) == seeds_on_disk(part) == seeds_on_disk(whole)
    assert told(part) == told(whole)
    assert len(lines_of(part, "generations")) == total and not lines_of(part, "failures")
    if judged:  # its verdicts tell times
        return
    name = "trajectories.jsonl"
    assert (part / name).read_bytes() == (whole / name).read_bytes()
    ours, theirs = lines_of(part, "verdicts"), lines_of(whole, "verdicts")
    assert {AnswerKey.of(row): row for row in ours} == {AnswerKey.of(row): row for row in theirs}


def test_run_killed_thrice_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    check_killed_run(SMALL, tmp_path, chosen=3)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", range(3))
def test_large_run_killed_thrice_ends_the_same(chosen: int, tmp_path: Path) -> None:
    check_killed_run(WHOLE, tmp_path, chosen)


@pytest.mark.slow
def test_judged_run_killed_thrice_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    # Its seeds are public, so the same kernel gets the same verdict and feedback each time.
    check_killed_run(SMALL | {"ruleset": "kernelbench"}, tmp_path, chosen=5, judged=True)
