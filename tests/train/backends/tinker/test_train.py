"""Training against a service in this process: what is submitted, kept, resumed and rolled back."""

from __future__ import annotations

import json
import os
import signal

import pytest

from kernelgym import UsageError
from kernelgym.interruption import ended_by_sigterm
from kernelgym.testing import verdict
from kernelgym_train.backends.tinker.datums import datum_row
from kernelgym_train.backends.tinker.losses import learning_rate_at, loss_of
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.backends.trl.rows import rows_of
from kernelgym_train.config.sections import OptimiserConfig
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps
from support import fake_tinker
from support.fake_tinker import Store


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up."""


def rows(folder, name):
    """Return a log's rows."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def outcome(folder):
    """Return all that is equal of two equal runs."""
    timed = ("time/", "judge/", "policy/latency", "policy/in_flight")
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
        "saved": [(row["name"], row["batch"]) for row in rows(folder, "checkpoints.jsonl")],
    }


def same(problem, kernel):
    """Judge every kernel alike."""
    return verdict("wrong")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return the folder and the store of a run of five steps."""
    folder, store = tmp_path_factory.mktemp("tinker") / "run", Store()
    fake_tinker.run(folder, fake_tinker.config(), store)
    return folder, store


def test_run_has_the_names_of_every_backend(unbroken):
    folder, _ = unbroken
    metrics = rows(folder, "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2, 3, 4]
    for name in (
        *("reward/mean", "kernel/correct_rate", "groups/waste", "progress/done_frac"),
        *("time/play_s", "time/judge_s", "time/train_s", "time/total_s", "time/snapshot_s"),
        *("train/learning_rate", "train/grad_norm", "train/loss", "train/entropy", "guards/gap"),
        *("train/gap_max", "train/updates", "train/datums", "infra/policy_fail_rate"),
        *("policy/staleness_mean", "policy/latency_max_s", "policy/in_flight_max"),
    ):
        assert all(isinstance(row[name], float | int) for row in metrics), name
    assert all(row["train/gap_max"] < 1e-9 for row in metrics)
    assert all(row["policy/staleness_max"] == 0.0 for row in metrics)
    assert "time/save_s" in metrics[2] and "time/save_s" not in metrics[0]


def test_policy_is_made_anew_after_every_update(unbroken):
    folder, store = unbroken
    assert store.snapshots == len(store.updates) == 5
    assert {row["policy_version"] - row["key"][0] for row in rows(folder, "tokens.jsonl")} == {0}


def test_checkpoint_row_carries_the_services_paths(unbroken):
    folder, store = unbroken
    saved = rows(folder, "checkpoints.jsonl")
    assert [(row["step"], row["name"], row["batch"]) for row in saved] == [
        (2, "step-000002", 2),
        (4, "step-000004", 4),
        (5, "step-000005", 5),
    ]
    for row in saved:
        kept = json.loads((folder / row["path"] / "state.json").read_text())["tinker"]
        assert kept["version"] == row["step"] and kept["server"] == "http://fake"
        assert row["state_path"] == kept["state_path"] and row["state_path"] in store.kept
        assert row["sampler_path"] == kept["sampler_path"]
    assert store.created == [("tiny", 4, 0)] and not store.restored


def test_reward_rises(tmp_path):
    settings = fake_tinker.config("optimiser.steps=12", "run.save_every=100", "env.stop=never")
    fake_tinker.run(tmp_path / "run", settings, Store())
    found = [row["reward/mean"] for row in rows(tmp_path / "run", "metrics.jsonl")]
    assert sum(found[-3:]) / 3 > sum(found[:3]) / 3 + 0.1


def test_rows_submitted_equal_trls(tmp_path, monkeypatch):
    taken, write_down = [], Steps.write_down

    def noted(self, *args):
        taken.append(write_down(self, *args))
        return taken[-1]

    monkeypatch.setattr(Steps, "write_down", noted)
    store = Store()
    fake_tinker.run(tmp_path / "run", fake_tinker.config("optimiser.steps=2"), store)
    assert len(taken) == len(store.updates) == 2
    for step, (submitted, _) in zip(taken, store.updates, strict=True):
        samples = [each for each in step.credit.samples if each.advantage]
        assert list(submitted) == [datum_row(sample) for sample in samples]
        theirs = rows_of(samples, len(samples), end=1)
        for place, row in enumerate(submitted):
            prompt = len(theirs.prompt_ids[place])
            assert list(row.targets[prompt - 1 :]) == theirs.completion_ids[place]
            product = theirs.advantages[place] * theirs.weights[place]
            assert set(row.advantages[prompt - 1 :]) == {product}


def test_zero_advantages_submit_nothing(tmp_path):
    settings = fake_tinker.config(
        *("optimiser.steps=3", "sampling.refill_rounds=0", "run.save_every=1", "env.max_turns=1"),
        *("reward.preset=sparse", "guards.no_signal=off"),
    )
    store = Store()
    done, log, _ = fake_tinker.run(tmp_path / "run", settings, store, script=same)
    assert store.updates == [] and store.snapshots == 1
    metrics = rows(log.folder, "metrics.jsonl")
    assert [row["train/updates"] for row in metrics] == [0.0] * 3
    assert "guards/gap" not in metrics[0], "nothing was compared, which is not a gap of 0"
    assert {row["policy_version"] for row in rows(log.folder, "tokens.jsonl")} == {0}
    assert done.model.version == 0


def test_updates_divide_a_step_without_rest(tmp_path):
    settings = fake_tinker.config("optimiser.updates_per_step=3", "optimiser.steps=2")
    store = Store()
    _, log, _ = fake_tinker.run(tmp_path / "run", settings, store)
    metrics = rows(log.folder, "metrics.jsonl")
    assert [row["train/updates"] for row in metrics] == [3.0, 3.0] and len(store.updates) == 6
    for step in (0, 1):
        parts = [part for part, _ in store.updates[3 * step : 3 * step + 3]]
        assert sum(map(len, parts)) == metrics[step]["train/datums"]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    # Of later updates the learner is ahead of the sampler: no gap that means anything.
    assert all(row["train/gap_max"] < 1e-9 for row in metrics)
    assert {row["policy_version"] for row in rows(log.folder, "tokens.jsonl")} == {0, 3}


def dying(count, method, *, after=False):
    """Return `method`, killed at its n-th call, before or after its work."""
    calls = iter(range(1, 1 << 30))

    def called(*args, **options):
        if next(calls) < count:
            return method(*args, **options)
        if after:
            method(*args, **options)
        raise Killed

    return called


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
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RunLog, name, dying(count, getattr(RunLog, name), after=after))
        fake_tinker.run(folder, fake_tinker.config(), store)
    _, log, _ = fake_tinker.run(folder, fake_tinker.config(), store, resume=True)
    assert (log.start.step if log.start else 0) == step
    if step:
        assert log.start.facts["name"] == f"step-{step:06d}"
        assert store.restored == [log.start.facts["state_path"]]
    assert outcome(folder) == outcome(unbroken[0])


def test_run_gone_back_equals_unbroken(unbroken, tmp_path):
    folder, store = tmp_path / "run", Store()
    fake_tinker.run(folder, fake_tinker.config(), store)
    _, log, _ = fake_tinker.run(folder, fake_tinker.config(), store, from_step=2)
    assert store.restored == [log.start.facts["state_path"]] and log.start.step == 2
    assert len(store.updates) == 5 + 3
    assert outcome(folder) == outcome(unbroken[0])


def test_finished_run_asks_the_service_for_nothing(unbroken, tmp_path):
    folder, store = tmp_path / "run", Store()
    fake_tinker.run(folder, fake_tinker.config("optimiser.steps=2"), store)
    before = outcome(folder)
    done, _, _ = fake_tinker.run(
        folder, fake_tinker.config("optimiser.steps=2"), store, resume=True
    )
    assert outcome(folder) == before and not store.restored
    assert done.steps == 2 and done.model.state_path in store.kept


def test_rollback_restores_the_good_checkpoint(tmp_path):
    settings = fake_tinker.config(
        *("guards.collapse=rollback", "guards.least_entropy=1.8", "guards.window=1"),
        *("run.save_every=1", "optimiser.steps=6", "optimiser.learning_rate=8"),
        "guards.no_signal=off",
    )
    store = Store()
    done, log, steps = fake_tinker.run(tmp_path / "run", settings, store)
    backs = [row for row in rows(log.folder, "events.jsonl") if row["event"] == "rollback"]
    assert backs and len(store.restored) == len(backs)
    good = [row["state_path"] for row in rows(log.folder, "checkpoints.jsonl") if row["good"]]
    assert set(store.restored) <= set(good)
    metrics = rows(log.folder, "metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(len(metrics))), "no step is there twice"
    assert {row["train/learning_rate"] for row in metrics} <= {8 / 2**n for n in range(4)}
    assert steps.sampler.seed_epoch == len(backs)
    assert done.stopped or done.steps == 6


def test_stopped_run_keeps_its_weights(tmp_path):
    settings = fake_tinker.config(
        "guards.collapse=stop", "guards.least_entropy=9", "run.save_every=100"
    )
    store = Store()
    done, log, _ = fake_tinker.run(tmp_path / "run", settings, store)
    assert done.steps == 1 and done.stopped.startswith("collapse/entropy")
    assert store.saved == [("final", 0)] and done.model.version == 1
    assert not (log.folder / "checkpoints.jsonl").exists(), "a run goes on from none of it"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_finishes_the_step_and_saves(number, tmp_path, monkeypatch):
    play = Steps.play

    async def interrupted(self, step, *args, **options):
        if step == 2:
            os.kill(os.getpid(), number)
        return await play(self, step, *args, **options)

    monkeypatch.setattr(Steps, "play", interrupted)
    folder, store = tmp_path / "run", Store()
    with ended_by_sigterm() as code, pytest.raises(KeyboardInterrupt):
        fake_tinker.run(folder, fake_tinker.config("run.save_every=100"), store)
    assert code.value == 128 + number
    start = RunLog.follow(folder).start
    assert start is not None and start.step == 3
    assert [name for name, _ in store.saved] == ["step-000003"]


@pytest.mark.parametrize("undeletable", [False, True])
def test_pruned_checkpoints_are_deleted_remotely(undeletable, unbroken, tmp_path):
    store = Store(undeletable=undeletable)
    settings = fake_tinker.config("run.save_every=1", "run.keep_checkpoints=1")
    _, log, _ = fake_tinker.run(tmp_path / "run", settings, store)
    saved = rows(log.folder, "checkpoints.jsonl")
    pruned = [row for row in saved if not (log.folder / row["path"]).exists()]
    assert [row["step"] for row in pruned] == [2, 3, 4]
    gone = [row[name] for row in pruned for name in ("state_path", "sampler_path")]
    events = rows(log.folder, "events.jsonl")
    told = [row["path"] for row in events if row["event"] == "not_deleted"]
    assert (told, store.deleted) == ((gone, []) if undeletable else ([], gone))
    assert all("within 1 s" in row["reason"] for row in events if row["event"] == "not_deleted")
    assert {row["state_path"] for row in saved if row not in pruned} <= set(store.kept)
    assert outcome(log.folder)["metrics"] == outcome(unbroken[0])["metrics"], "the run goes on"


def test_run_of_another_backend_is_not_resumed(tmp_path, unbroken):
    folder, store = tmp_path / "run", Store()
    fake_tinker.run(folder, fake_tinker.config("optimiser.steps=2"), store)
    state = folder / "checkpoints" / "step-000002" / "state.json"
    kept = json.loads(state.read_text())
    del kept["tinker"]
    state.write_text(json.dumps(kept))
    with pytest.raises(UsageError, match="is not one of a Tinker service"):
        fake_tinker.run(folder, fake_tinker.config(), store, resume=True)


def test_spending_counts_every_token_once(unbroken):
    folder, store = unbroken
    totals = [row["cost/tokens"] for row in rows(folder, "metrics.jsonl")]
    assert totals == sorted(totals)
    sampled = sum(len(row["prompt_ids"]) + len(row["ids"]) for row in rows(folder, "tokens.jsonl"))
    learned = sum(len(row.tokens) for part, _ in store.updates for row in part)
    assert totals[-1] == sampled + learned and learned
    assert "cost/usd" not in rows(folder, "metrics.jsonl")[0], "the price is not known"


def test_cap_ends_the_run_with_a_checkpoint(unbroken, tmp_path):
    most = int(rows(unbroken[0], "metrics.jsonl")[2]["cost/tokens"])
    settings, store = fake_tinker.config("run.save_every=100"), Store()

    def go(cap, **more):
        spending = Spending(None, most_tokens=cap)
        return fake_tinker.run(tmp_path / "run", settings, store, spending=spending, **more)[0]

    done = go(most)
    assert (done.steps, store.saved) == (3, [("step-000003", 0)])
    assert f"{most:,} tokens were spent, and tinker.most_tokens is" in done.stopped
    played = store.snapshots
    done = go(most, resume=True)
    assert done.steps == 3 and done.stopped and store.snapshots == played, "nothing was asked for"
    done = go(10**9, resume=True)
    assert (done.steps, done.stopped) == (5, "")
    assert outcome(tmp_path / "run")["metrics"] == outcome(unbroken[0])["metrics"]


def test_rollback_takes_nothing_back_of_what_was_spent(tmp_path):
    settings = fake_tinker.config(
        *("guards.collapse=rollback", "guards.least_entropy=1.8", "guards.window=1"),
        *("run.save_every=1", "optimiser.steps=6", "optimiser.learning_rate=8"),
        "guards.no_signal=off",
    )
    store, spending = Store(), Spending(None)
    fake_tinker.run(tmp_path / "run", settings, store, spending=spending)
    assert store.restored, "it was rolled back"
    learned = sum(len(row.tokens) for part, _ in store.updates for row in part)
    assert spending.spent.train == learned
    kept = sum(len(row["ids"]) for row in rows(tmp_path / "run", "tokens.jsonl"))
    assert spending.spent.sample > kept, "logs were cut back"


def test_update_is_told_loss_rate_and_clipping(tmp_path):
    settings = fake_tinker.config(
        *("optimiser.steps=1", "optimiser.clip_low=0.2", "optimiser.clip_high=0.3"),
        *("optimiser.max_grad_norm=0.5", "optimiser.weight_decay=0.01"),
    )
    store = Store()
    fake_tinker.run(tmp_path / "run", settings, store)
    ((_, told),) = store.updates
    assert told.pop("loss_config") == pytest.approx(
        {"clip_low_threshold": 0.8, "clip_high_threshold": 1.3}
    )
    assert told == {
        "loss": "ppo",
        "learning_rate": 2.0,
        "weight_decay": 0.01,
        "max_grad_norm": 0.5,
    }


@pytest.mark.parametrize(("name", "told"), [("importance_sampling", False), ("cispo", True)])
def test_losses_know_their_bounds(name, told):
    found = loss_of(fake_tinker.config(f"optimiser.loss={name}"))
    assert found.name == name and bool(found.config) == told


def test_ratios_of_whole_answers_are_gspo():
    found = loss_of(fake_tinker.config("optimiser.importance=sequence"))
    assert found.name == "gspo" and found.told(0.5) == loss_of(fake_tinker.config()).config


@pytest.mark.parametrize(
    "given", [("gspo", "optimiser.importance=sequence"), ("dro", "optimiser.loss=dro")]
)
def test_loss_the_server_lacks_is_refused_at_start(given, tmp_path):
    loss, setting = given
    store = Store(lacks=(loss,))
    with pytest.raises(UsageError, match=f"http://fake does not have the loss {loss}; set optim"):
        fake_tinker.run(tmp_path / "run", fake_tinker.config(setting), store)
    assert store.updates == [] and store.snapshots == 0


def test_loss_is_asked_about_once_where_it_may_lack(unbroken, tmp_path):
    assert unbroken[1].tried == []
    store, settings = Store(), fake_tinker.config("optimiser.loss=dro", "tinker.dro_beta=0.1")
    _, log, _ = fake_tinker.run(tmp_path / "run", settings, store)
    fake_tinker.run(tmp_path / "run", settings, store, from_step=2)
    assert store.tried == ["dro"]
    # The penalty weighs what the advantages of the same rows do.
    for step, (_, told) in enumerate(store.updates[:5]):
        played = [row for row in rows(log.folder, "tokens.jsonl") if row["key"][0] == step]
        weight = told["loss_config"]["beta"] / 0.1
        assert 1.0 / sum(len(row["ids"]) for row in played) <= weight * (1 + 1e-9)
        assert (told["loss"], len(told["loss_config"])) == ("dro", 1)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.0, 0.5, 1.0, 1.0]),
        ("linear", [0.0, 0.5, 1.0, 0.5]),
        ("cosine", [0.0, 0.5, 1.0, 0.5]),
    ],
)
def test_learning_rate_rises_then_follows_schedule(schedule, rates):
    optimiser = OptimiserConfig(schedule=schedule, warmup_steps=1, steps=2, updates_per_step=2)
    found = [learning_rate_at(optimiser, 1.0, update) for update in range(4)]
    assert found == pytest.approx(rates)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warm", [0, 2])
def test_learning_rates_are_those_of_transformers(schedule, warm):
    import torch
    from transformers import get_scheduler

    optimiser = OptimiserConfig(schedule=schedule, warmup_steps=warm, steps=6, updates_per_step=2)
    adam = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    theirs = get_scheduler(
        {"constant": "constant_with_warmup"}.get(schedule, schedule), adam, 2 * warm, 12
    )
    for update in range(12):
        rate = learning_rate_at(optimiser, 0.5, update)
        assert rate == pytest.approx(adam.param_groups[0]["lr"], abs=1e-12)
        adam.step()
        theirs.step()
