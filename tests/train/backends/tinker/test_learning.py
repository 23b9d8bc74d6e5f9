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
from support.tinker_server import PREPARED, ROOT

pytestmark = pytest.mark.tinker

SINGLE_TURN = (
    *("--config", "tinker_synthetic", "env.max_turns=1", "optimiser.schedule=constant"),
    *("optimiser.steps=8", "run.save_every=4", "evaluation.every=0", "evaluation.limit=4"),
    *("evaluation.samples=2", "evaluation.pass_at=[1]", "logging.tokens=true"),
    *("logging.tensorboard=false", "logging.live=false"),
)
_PATIENCE_S = 240.0


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


def start(server, folder, name, *more):
    """Start a run in a process of its own."""
    command = [sys.executable, "-m", "kernelgym_train", *given(server, folder, name, *more)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def wait_until(process, reached):
    """Wait until a run has come so far; it must not have ended."""
    until = time.monotonic() + _PATIENCE_S
    while not reached():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)


def saved(run):
    """Return how many checkpoints a run has made."""
    path = run / "checkpoints.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def played(run, steps):
    """Return what the first steps of a run were about, in its order."""
    found = [(row["key"], row["problem"]["id"]) for row in rows(run, "trajectories.jsonl")]
    return [(key, problem) for key, problem in found if int(key.partition("/")[0]) < steps]


def drawn(run, step):
    """Return the state of a run's sampler in its checkpoint after so many steps.

    Groups and episodes of each bucket, but not their scores: restored weights are equal to five
    digits, so an answer may differ.
    """
    (row,) = [row for row in rows(run, "checkpoints.jsonl") if row["step"] == step]
    state = json.loads((run / row["path"] / "state.json").read_text())["steps"]["sampler"]
    return state | {"buckets": {name: found[:2] for name, found in state["buckets"].items()}}


def answered(run, steps):
    """Return the ids of each answer of the first steps."""
    return {
        tuple(row["key"]): row["ids"] for row in rows(run, "tokens.jsonl") if row["key"][0] < steps
    }


def test_killed_run_is_resumed(server, learned, tmp_path):
    """It has the unbroken run's problems, seeds, order and bookkeeping."""
    run = tmp_path / "killed"
    process = start(server, tmp_path, "killed", "optimiser.steps=4", "run.save_every=1")
    wait_until(process, lambda: saved(run) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(["--resume", str(run)]) == 0
    events = [row["event"] for row in rows(run, "events.jsonl")]
    assert events == ["started", "resumed", "finished"]
    metrics = rows(run, "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2, 3]
    assert all(row["train/gap_max"] < 1e-4 for row in metrics)
    assert played(run, 4) == played(learned, 4)
    assert drawn(run, 4) == drawn(learned, 4)
    assert answered(run, 1) == answered(learned, 1), "the same seeds, and weights to begin with"


def test_answers_without_an_advantage_move_nothing(server, tmp_path):
    """The operator is one that the model has never seen, so no answer is right."""
    more = ("optimiser.steps=2", "sampling.problems_per_step=1", "sampling.group_size=2")
    arguments = given(server, tmp_path, "flat", *more, suite="unseen_operator")
    assert main([*arguments, "guards.no_signal=off"]) == 0
    run = tmp_path / "flat"
    assert [row["train/updates"] for row in rows(run, "metrics.jsonl")] == [0.0, 0.0]
    assert json.loads((run / "model" / "tinker.json").read_text())["version"] == 0


@pytest.mark.slow
def test_first_answers_rise_over_twelve_steps(server, tmp_path):
    assert main(given(server, tmp_path, "twelve", "optimiser.steps=12")) == 0
    right = [row["turn_1/correct_rate"] for row in rows(tmp_path / "twelve", "metrics.jsonl")]
    assert len(right) == 12
    assert sum(right[-3:]) / 3 >= sum(right[:3]) / 3 + 0.20, right


@pytest.mark.slow
def test_two_turns_are_learned_from(server, tmp_path):
    assert main(given(server, tmp_path, "two", "env.max_turns=2", "optimiser.steps=3")) == 0
    run = tmp_path / "two"
    metrics = rows(run, "metrics.jsonl")
    assert [row["train/updates"] for row in metrics] == [1.0] * 3
    assert all(row["train/gap_max"] < 1e-4 for row in metrics)
    assert all(0.0 <= row["turn_2/correct_rate"] <= 1.0 for row in metrics)
    turns = [len(row["turns"]) for row in rows(run, "trajectories.jsonl")]
    assert len(turns) == 3 * 64 and set(turns) == {1, 2}
    asked = {tuple(row["key"]): row["prompt_ids"] for row in rows(run, "tokens.jsonl")}
    assert len(asked) == sum(turns)
    for (*key, turn), prompt in asked.items():
        assert not turn or len(prompt) > len(asked[*key, 0]), "the retry follows the question"


@pytest.mark.slow
def test_run_one_step_off_keeps_its_updates(server, tmp_path):
    """The gap is of the updates in between: undone by a snapshot, they would leave none."""
    more = ("tinker.off_policy=1", "optimiser.steps=5")
    assert main(given(server, tmp_path, "ahead", *more)) == 0
    metrics = rows(tmp_path / "ahead", "metrics.jsonl")
    assert [row["policy/staleness_max"] for row in metrics] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert all(row["train/gap_stale"] > 1e-4 for row in metrics[1:])
    assert metrics[0]["train/gap_max"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sample", "forward_backward"])
def test_run_outlives_its_servers_kill(kind, server, learned, tmp_path):
    """API and engine are killed in the middle of a request, and started again."""
    run = tmp_path / "outlived"
    more = ("optimiser.steps=4", "run.save_every=1", "tinker.answer_timeout_s=60")
    process = start(server, tmp_path, "outlived", *more, "tinker.step_timeout_s=120")
    wait_until(process, lambda: saved(run) >= 2 and server.pending(kind))
    server.stop(signal.SIGKILL)
    assert server.pending(kind), "the request was not answered"
    server.start()
    assert process.wait(4 * _PATIENCE_S) == 0
    events = [row["event"] for row in rows(run, "events.jsonl")]
    assert (events[0], events[-1]) == ("started", "finished")
    assert 1 <= events.count("learner_lost") <= 3
    assert events.count("resumed") == events.count("learner_lost"), "in place, by the same process"
    assert len({row["pid"] for row in rows(run, "events.jsonl")}) == 1
    metrics = rows(run, "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2, 3]
    assert [row["train/updates"] for row in metrics] == [1.0] * 4
    assert all(row["train/gap_max"] < 1e-4 for row in metrics)
    assert played(run, 4) == played(learned, 4)
    assert drawn(run, 4) == drawn(learned, 4)
