"""`tinker.off_policy=1`: a step is played by weights one step old."""

from __future__ import annotations

import json
import os
import signal

import pytest

from kernelgym.testing import verdict
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps
from support import fake_clock, fake_tinker
from support.fake_tinker import FakeLearner, Store

SMALL = (
    *("tinker.off_policy=1", "optimiser.steps=5", "env.max_turns=1", "sampling.refill_rounds=0"),
    *("run.save_every=2", "guards.infrastructure=off", "guards.no_signal=off"),
)


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    fake_clock.use(monkeypatch)


def rows(folder, name):
    """Return a log's rows."""
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def outcome(folder):
    """Return what is equal of two equal runs."""
    timed = ("time/", "judge/", "policy/latency", "policy/in_flight", "cost/")
    return {
        "metrics": [
            {key: value for key, value in row.items() if not key.startswith(timed)}
            for row in rows(folder, "metrics.jsonl")
        ],
        "tokens": rows(folder, "tokens.jsonl"),
        "played": [
            (row["key"], row["problem"], [turn["score"]["total"] for turn in row["turns"]])
            for row in rows(folder, "trajectories.jsonl")
        ],
        "saved": [row["name"] for row in rows(folder, "checkpoints.jsonl")],
    }


def run(folder, store, *more, **options):
    """Train by the small configuration; returns how it ended."""
    return fake_tinker.run(folder, fake_tinker.config(*SMALL, *more), store, **options)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return the folder of a run that went to its end."""
    folder = tmp_path_factory.mktemp("ahead") / "run"
    run(folder, Store())
    return folder


def test_step_is_played_by_weights_one_update_old(unbroken):
    metrics = rows(unbroken, "metrics.jsonl")
    assert [row["policy/staleness_max"] for row in metrics] == [0, 1, 1, 1, 1]
    played = {(row["key"][0], row["policy_version"]) for row in rows(unbroken, "tokens.jsonl")}
    assert played == {(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)}


def test_gap_of_older_weights_is_not_the_guards(unbroken):
    first, *later = rows(unbroken, "metrics.jsonl")
    assert first["guards/gap"] < 1e-9 and "train/gap_stale" not in first
    for row in later:
        assert row["train/gap_stale"] > 1e-3
        assert "guards/gap" not in row and "train/gap_max" not in row


def test_next_step_is_played_before_the_update(tmp_path, monkeypatch):
    told = []

    def note(kind, owner, name):
        method = getattr(owner, name)

        async def noted(self, *args, **options):
            told.append(kind)
            return await method(self, *args, **options)

        monkeypatch.setattr(owner, name, noted)

    note("play", Steps, "play")
    note("update", FakeLearner, "update")
    run(tmp_path / "run", Store())
    assert told == ["play", *["play", "update"] * 4, "update"]


@pytest.mark.parametrize(
    ("name", "count", "after", "step"),
    [
        ("rollouts", 4, False, 2),
        ("metrics", 4, True, 2),
        ("commit", 2, False, 2),
        ("commit", 2, True, 4),
        ("rollouts", 2, False, 0),
    ],
)
def test_killed_and_resumed_equals_unbroken(name, count, after, step, unbroken, tmp_path):
    folder, store = tmp_path / "run", Store()
    method, calls = getattr(RunLog, name), iter(range(1, 1 << 30))

    def dying(*args, **options):
        if next(calls) < count:
            return method(*args, **options)
        if after:
            method(*args, **options)
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RunLog, name, dying)
        run(folder, store)
    _, log, _ = run(folder, store, resume=True)
    assert (log.start.step if log.start else 0) == step
    assert outcome(folder) == outcome(unbroken)


@pytest.mark.parametrize("lost", [("update", 0), ("update", 2), ("keep", 1), ("save", 1)])
def test_lost_learner_equals_unbroken(lost, unbroken, tmp_path):
    store = Store(faults={lost: "late"})
    run(tmp_path / "run", store)
    assert outcome(tmp_path / "run") == outcome(unbroken)
    assert store.after_failure == []


def test_checkpoint_keeps_the_weights_that_play(unbroken):
    saved = rows(unbroken, "checkpoints.jsonl")
    states = [json.loads((unbroken / row["path"] / "state.json").read_text()) for row in saved]
    assert [state.get("before", {}).get("version") for state in states] == [1, 3, None]
    for row, state in zip(saved[:2], states, strict=False):
        assert row["before_path"] == state["before"]["sampler_path"] != row["sampler_path"]
        assert state["tinker"]["version"] == row["step"]
        assert state["steps"]["sampler"]["last"][0] == row["step"] - 1, "the next was not begun"


def test_interrupt_draws_the_next_step_as_if_new(unbroken, tmp_path, monkeypatch):
    folder, store, update, calls = tmp_path / "run", Store(), FakeLearner.update, iter(range(9))

    async def interrupted(self, *args, **options):
        if next(calls) == 2:  # step 3 is under way
            os.kill(os.getpid(), signal.SIGINT)
        return await update(self, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FakeLearner, "update", interrupted)
        run(folder, store)
    assert [row["step"] for row in rows(folder, "checkpoints.jsonl")] == [2, 3]
    run(folder, store, resume=True)
    ours, theirs = outcome(folder), outcome(unbroken)
    assert [each[:2] for each in ours["played"]] == [each[:2] for each in theirs["played"]]
    stale = [row["policy/staleness_max"] for row in rows(folder, "metrics.jsonl")]
    assert stale == [0, 1, 1, 0, 1], "no older weights were kept for an interrupt"


def test_rollback_abandons_what_is_under_way(tmp_path):
    store = Store()
    more = (
        *("guards.collapse=rollback", "guards.least_entropy=2.0", "guards.window=1"),
        *("run.save_every=1", "optimiser.steps=6", "optimiser.learning_rate=20"),
    )
    _, log, steps = run(tmp_path / "run", store, *more)
    backs = [row for row in rows(log.folder, "events.jsonl") if row["event"] == "rollback"]
    assert backs and steps.sampler.seed_epoch == len(backs)
    metrics = rows(log.folder, "metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(len(metrics)))
    played = [row["key"][0] for row in rows(log.folder, "tokens.jsonl")]
    assert played == sorted(played) and max(played) == len(metrics) - 1


def test_step_without_an_update_stays_on_policy(tmp_path):
    def same(problem, kernel):
        return verdict("wrong")

    store = Store()
    run(tmp_path / "run", store, "reward.preset=sparse", script=same)
    metrics = rows(tmp_path / "run", "metrics.jsonl")
    assert not store.updates and store.snapshots == 1
    assert [row["policy/staleness_max"] for row in metrics] == [0] * 5
