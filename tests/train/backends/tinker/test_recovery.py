"""Training on a service that fails: retries, recovery, giving up, counting."""

from __future__ import annotations

import json
import os
import random
import signal

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from kernelgym_train.backends.tinker.datums import datum_row
from kernelgym_train.backends.tinker.recovery import is_final
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps
from kernelgym_train.run.training import LearnerLost
from support import fake_clock, fake_tinker
from support.fake_tinker import FakeLearner, FakeService, StatusError, Store

SMALL = (
    *("optimiser.steps=4", "env.max_turns=1", "sampling.refill_rounds=0", "run.save_every=2"),
    *("guards.infrastructure=off", "guards.no_signal=off"),
)
AHEAD = "tinker.off_policy=1"
FAULTS = (408, 409, 429, 500, 503, "poisoned", "unanswered", "ignored", "late")


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    fake_clock.use(monkeypatch)


def rows(folder, name):
    """Return a log's rows."""
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def outcome(folder):
    """Return what is equal of two equal runs."""
    timed = ("time/", "judge/", "policy/", "cost/")
    return {
        "metrics": [
            {key: value for key, value in row.items() if not key.startswith(timed)}
            for row in rows(folder, "metrics.jsonl")
        ],
        "tokens": rows(folder, "tokens.jsonl"),
        "scores": [
            (row["key"], [turn["score"]["total"] for turn in row["turns"]])
            for row in rows(folder, "trajectories.jsonl")
        ],
        "saved": [row["name"] for row in rows(folder, "checkpoints.jsonl")],
    }


def events(folder, name):
    """Return the events of one name."""
    return [row for row in rows(folder, "events.jsonl") if row["event"] == name]


def run(folder, store, *more, **options):
    """Train by the small configuration; returns how it ended."""
    settings = fake_tinker.config(*SMALL, *more)
    return fake_tinker.run(folder, settings, store, **options)[0]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return the outcome of a run without a fault."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    run(folder, Store())
    return outcome(folder)


@pytest.fixture(scope="module")
def unbroken_ahead(tmp_path_factory):
    """Return the outcome of such a run that plays one step ahead."""
    folder = tmp_path_factory.mktemp("ahead") / "run"
    run(folder, Store(), AHEAD)
    return outcome(folder)


@pytest.mark.parametrize("fault", [409, "poisoned", "unanswered", "ignored", "late"])
def test_lost_update_is_recovered_in_place(fault, unbroken, tmp_path, capsys):
    store = Store(faults={("update", 3): fault})
    service = FakeService(store)
    done = run(tmp_path / "run", store, service=service)
    assert outcome(tmp_path / "run") == unbroken
    assert (done.steps, service.renewed, store.after_failure) == (4, 1, [])
    (lost,) = events(tmp_path / "run", "learner_lost")
    assert (lost["step"], lost["number"]) == (3, 1) and lost["reason"]
    assert [path.rpartition("/")[2] for path in store.restored] == ["step-000002"]
    assert "the run continues from step 2 (1 of 3 times)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["create", "snapshot", "update", "save"])
def test_run_without_a_checkpoint_starts_anew(kind, unbroken, tmp_path):
    store = Store(faults={(kind, 0): "unanswered"})
    run(tmp_path / "run", store)
    assert outcome(tmp_path / "run") == unbroken
    assert store.created == [("tiny", 4, 0)] * 2 and not store.restored
    assert store.after_failure == []


def test_restoring_that_fails_is_tried_again(unbroken, tmp_path):
    store = Store(faults={("update", 2): 503, ("restore", 0): "ignored", ("restore", 1): 500})
    run(tmp_path / "run", store)
    assert outcome(tmp_path / "run") == unbroken
    assert [row["number"] for row in events(tmp_path / "run", "learner_lost")] == [1, 2, 3]


def test_fourth_loss_ends_the_run_resumably(unbroken, tmp_path):
    store = Store(faults={("update", number): "ignored" for number in range(2, 6)})
    with pytest.raises(LearnerLost, match="did not give a update within 5 s"):
        run(tmp_path / "run", store)
    assert len(events(tmp_path / "run", "learner_lost")) == 3 and len(store.updates) == 6
    run(tmp_path / "run", store, resume=True)
    assert outcome(tmp_path / "run") == unbroken


@pytest.mark.parametrize("status", [401, 402, 403, 422])
def test_failure_of_every_client_ends_the_run(status, tmp_path):
    store = Store(faults={("update", 1): status})
    with pytest.raises(StatusError):
        run(tmp_path / "run", store)
    assert len(store.updates) == 2 and not events(tmp_path / "run", "learner_lost")


def test_poison_is_judged_by_what_it_came_from():
    poisoned = RuntimeError("poisoned")
    poisoned.__cause__ = StatusError(402)
    assert is_final(poisoned) and is_final(TypeError("ours"))
    assert not is_final(RuntimeError("poisoned")) and not is_final(StatusError(404))


def test_late_answer_after_its_retry_counts_once(unbroken, tmp_path):
    store = Store(answer_faults=lambda seed: ("late", 429))
    run(tmp_path / "run", store)
    assert outcome(tmp_path / "run") == unbroken
    attempts = [count for kind, count in store.asked.items() if isinstance(kind, int)]
    assert set(attempts) == {3} and len(attempts) == len(unbroken["tokens"])


def test_half_a_group_lost_is_counted_and_not_learned(tmp_path):
    gone = []

    def faults(seed):
        if len(gone) < 2 and seed not in gone:
            gone.append(seed)
        return (500, "late", "ignored") if seed in gone else ()

    store = Store(answer_faults=faults)
    run(tmp_path / "run", store, "optimiser.steps=1")
    (step,) = rows(tmp_path / "run", "metrics.jsonl")
    played = rows(tmp_path / "run", "trajectories.jsonl")
    cut = [row for row in played if row["ended"] == "cut"]
    assert len(cut) == 2 and step["infra/left_out"] == 2.0
    assert step["infra/policy_fail_rate"] == pytest.approx(2 / len(played))
    assert not events(tmp_path / "run", "learner_lost")


def test_snapshot_that_answers_nothing_is_lost(unbroken, tmp_path):
    asked = set()

    def faults(seed):
        asked.add(seed)
        return (503, 503, 503) if len(asked) <= len(unbroken["tokens"]) // 4 else ()

    store = Store(answer_faults=faults)
    run(tmp_path / "run", store)
    assert len(events(tmp_path / "run", "learner_lost")) == 1
    assert outcome(tmp_path / "run") == unbroken


def interrupting(method, at):
    """Return `method`, interrupted at its n-th call."""
    calls = iter(range(1 << 30))

    async def called(*args, **options):
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGINT)
        return await method(*args, **options)

    return called


def test_interrupted_play_is_given_up_and_saved(unbroken, tmp_path, monkeypatch):
    settled = len(unbroken["tokens"]) // 4 * 3
    asked = set()

    def faults(seed):
        asked.add(seed)
        return () if len(asked) <= settled else ("ignored",) * 9

    store = Store(answer_faults=faults)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Steps, "play", interrupting(Steps.play, 3))
        run(tmp_path / "run", store, "tinker.step_timeout_s=2")
    (given_up,) = events(tmp_path / "run", "step_given_up")
    assert given_up["step"] == 3
    assert [row["step"] for row in rows(tmp_path / "run", "checkpoints.jsonl")] == [2, 3]
    store.answer_faults = lambda seed: ()
    run(tmp_path / "run", store, "tinker.step_timeout_s=2", resume=True)
    found = outcome(tmp_path / "run")
    assert {**found, "saved": []} == {**unbroken, "saved": []}


def test_interrupted_update_is_given_up_without_saving(unbroken, tmp_path, monkeypatch):
    store = Store(faults={("update", 2): "late"}, limit_s=60.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FakeLearner, "update", interrupting(FakeLearner.update, 2))
        run(tmp_path / "run", store, "run.save_every=100", "tinker.step_timeout_s=2")
    assert len(events(tmp_path / "run", "step_given_up")) == 1 and not store.saved
    run(tmp_path / "run", store, "tinker.step_timeout_s=2", resume=True)
    assert outcome(tmp_path / "run")["tokens"] == unbroken["tokens"]
    assert RunLog.follow(tmp_path / "run").start.step == 4


training_faults = st.dictionaries(
    st.tuples(
        st.sampled_from(["create", "restore", "snapshot", "update", "save", "keep"]),
        st.integers(0, 5),
    ),
    st.sampled_from(FAULTS),
    max_size=3,
)


@effort(max_examples=6)
@given(training_faults, st.sampled_from([0.0, 0.3]), st.integers(0, 99))
def test_no_sample_is_learned_twice_or_lost(tmp_path_factory, unbroken, faults, rate, salt):
    check_faults(tmp_path_factory, unbroken, faults, rate, salt)


@effort(max_examples=4)
@given(training_faults, st.sampled_from([0.0, 0.3]), st.integers(0, 99))
def test_no_sample_is_lost_one_step_off(tmp_path_factory, unbroken_ahead, faults, rate, salt):
    check_faults(tmp_path_factory, unbroken_ahead, faults, rate, salt, AHEAD)


@pytest.mark.slow
@effort(max_examples=120)
@given(training_faults, st.sampled_from([0.0, 0.1, 0.3]), st.integers(0, 9999), st.booleans())
def test_more_schedules_of_faults_lose_nothing(
    tmp_path_factory, unbroken, unbroken_ahead, faults, rate, salt, ahead
):
    expected, setting = (unbroken_ahead, AHEAD) if ahead else (unbroken, "tinker.off_policy=0")
    check_faults(tmp_path_factory, expected, faults, rate, salt, setting)


def check_faults(tmp_path_factory, unbroken, faults, rate, salt, setting="tinker.off_policy=0"):
    """Check that every sample is learned once or counted as lost."""

    def answer_faults(seed):
        chance = random.Random(f"{salt}/{seed}")
        count = chance.choice((1, 2, 3)) if chance.random() < rate else 0
        return [chance.choice(FAULTS) for _ in range(count)]

    folder = tmp_path_factory.mktemp("faults") / "run"
    store = Store(faults=faults, answer_faults=answer_faults)
    taken = {}
    write_down = Steps.write_down

    def noted(self, step, played):
        taken[step] = write_down(self, step, played)
        return taken[step]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "write_down", noted)
        fake_clock.use(patch)
        done = run(folder, store, setting)
    assert done.steps == 4 and store.after_failure == []
    samples = [sample for step in range(4) for sample in taken[step].credit.samples]
    taught = [sample for sample in samples if sample.advantage]
    assert len({sample.key for sample in taught}) == len(taught)
    # All that these weights have learned from, over every checkpoint that they came by.
    assert store.learned[done.model.state_path] == tuple(map(datum_row, taught))
    played = rows(folder, "trajectories.jsonl")
    keys = [row["key"] for row in played]
    assert keys == [key for key, _ in unbroken["scores"]], "each once, in order"
    cut = [row for row in played if row["ended"] == "cut"]
    counted = sum(row["infra/left_out"] for row in rows(folder, "metrics.jsonl"))
    assert len(cut) == counted
    if not cut:
        assert outcome(folder) == unbroken
