"""Runs of `kernelgym-train` on a third party's server, with the demonstration's model and a judge.

`make test-tinker` prepares model and problems.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kernelgym_train.cli import main
from support.tinker_server import ROOT, running

pytestmark = pytest.mark.tinker

PREPARED = ROOT / "runs" / "prepared"
SINGLE_TURN = (
    *("--config", "tinker_synthetic", "env.max_turns=1", "optimiser.schedule=constant"),
    *("optimiser.steps=8", "run.save_every=4", "evaluation.every=0", "evaluation.limit=4"),
    *("evaluation.samples=2", "evaluation.pass_at=[1]", "logging.tokens=true"),
    *("logging.tensorboard=false", "logging.live=false"),
)
_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a server of the demonstration's warm-started model."""
    if not (PREPARED / "start" / "prepared.json").is_file():
        pytest.skip(f"needs {PREPARED}, which `make test-tinker` prepares")
    with running(PREPARED / "start", tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")


def given(server, folder, name, *more, suite="practice"):
    """Return a run's arguments."""
    problems = PREPARED / "problems"
    return [
        *SINGLE_TURN,
        *(f"model.id={PREPARED / 'start'}", f"tinker.base_url={server.url}"),
        *(f"env.suite={problems / suite}", f"evaluation.suite={problems / 'compositions'}"),
        *(f"run.folder={folder}", f"run.name={name}", *more),
    ]


def rows(run, name):
    """Return a log's rows."""
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def learned(server, tmp_path_factory):
    """Return the folder of eight judged single-turn steps."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_API_KEY", "tml-of-a-test")
        assert main(given(server, folder, "one")) == 0
    return folder / "one"


def test_first_answers_get_better(learned):
    metrics = rows(learned, "metrics.jsonl")
    assert [row["train/updates"] for row in metrics] == [1.0] * 8
    right = [row["turn_1/correct_rate"] for row in metrics]
    assert sum(right[-3:]) / 3 > sum(right[:3]) / 3 + 0.1, right


def test_learner_and_sampler_agree_in_every_step(learned):
    metrics = rows(learned, "metrics.jsonl")
    assert all(row["train/gap_max"] < 1e-4 for row in metrics)
    assert all(row["policy/staleness_max"] == 0.0 for row in metrics)
    versions = {(row["key"][0], row["policy_version"]) for row in rows(learned, "tokens.jsonl")}
    assert versions == {(step, step) for step in range(8)}


def test_trained_weights_are_evaluated(learned, capsys):
    assert main(["--evaluate", str(learned)]) == 0
    found = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert 0.0 <= float(found["eval/pass@1"]) <= 1.0 and float(found["eval/problems"]) == 4.0


def test_killed_run_is_resumed(server, learned, tmp_path):
    run = tmp_path / "killed"
    more = ("optimiser.steps=3", "run.save_every=1")
    command = [sys.executable, "-m", "kernelgym_train", *given(server, tmp_path, "killed", *more)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    until = time.monotonic() + _PATIENCE_S
    saved = run / "checkpoints.jsonl"
    while not (saved.exists() and saved.read_text().count("\n") >= 2):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(["--resume", str(run)]) == 0
    events = [row["event"] for row in rows(run, "events.jsonl")]
    assert events == ["started", "resumed", "finished"]
    assert [row["step"] for row in rows(run, "metrics.jsonl")] == [0, 1, 2]
    assert all(row["train/gap_max"] < 1e-4 for row in rows(run, "metrics.jsonl"))

    def problems(folder):
        found = [(row["key"], row["problem"]["id"]) for row in rows(folder, "trajectories.jsonl")]
        return [(key, problem) for key, problem in found if int(key.partition("/")[0]) < 3]

    assert problems(run) == problems(learned), "those that the unbroken run has played"


def test_answers_without_an_advantage_move_nothing(server, tmp_path):
    """The operator is one that the model has never seen, so no answer is right."""
    more = ("optimiser.steps=2", "sampling.problems_per_step=1", "sampling.group_size=2")
    arguments = given(server, tmp_path, "flat", *more, suite="unseen_operator")
    assert main([*arguments, "guards.no_signal=off"]) == 0
    run = tmp_path / "flat"
    assert [row["train/updates"] for row in rows(run, "metrics.jsonl")] == [0.0, 0.0]
    assert json.loads((run / "model" / "tinker.json").read_text())["version"] == 0
