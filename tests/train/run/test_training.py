"""The bookkeeping that all backends share: when a stretch saves, evaluates, ends and goes back."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.launch.assembly import make_steps
from kernelgym_train.metrics.step_metrics import staleness
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.training import LearnerLost, Progress, TrainingOutcome, run_stretches
from kernelgym_train.types import Completion
from support import played, tiny


class Answers:
    """Answers every request with the same kernel."""

    def generate(self, requests):
        one = Completion("<KERNEL>class ModelNew: a = 1\n</KERNEL>", (1,), (4, 1), None, "stop", 0)
        return [one for _ in requests]


class Trained:
    """A backend that learns nothing: takes the steps of a stretch and saves when that is due."""

    def __init__(self, log):
        self.log = log
        self.begun = []
        self.evaluated = []

    def __call__(self, progress):
        self.begun.append((progress.done, progress.learning_rate))
        while not progress.ends:
            step = progress.done
            taken = asyncio.run(progress.steps.take(step, Answers()))
            measured = {"time/train_s": 0.0}
            progress.finish(step, taken, measured, version=0, entropy=0.5 if step < 3 else 0.0)
            asyncio.run(progress.evaluate(lambda sampling: Answers()))
            if progress.save_due:
                folder = progress.log.folder / "checkpoints" / f"at-{progress.done}"
                folder.mkdir()
                progress.commit(folder, state={"own": step}, facts={"name": folder.name})
        return TrainingOutcome(progress.done, stopped=progress.stopped)

    async def evaluate(self, policy, step):
        """Note an evaluation, in the log that the run was begun with."""
        self.evaluated.append(step)
        self.log.evaluation(step, {"eval/pass@1": 0.0})
        return float(step)


def train(folder, *overrides, watchers=lambda first: ()):
    """Take the steps of a run; returns (outcome, backend, steps)."""
    settings = tiny.config(
        *("guards.no_signal=off", "run.save_every=2", "optimiser.steps=5", "env.max_turns=1"),
        *("sampling.refill_rounds=0", "evaluation.every=2", "guards.window=1", *overrides),
    )
    log = RunLog.create(folder, {}, {})
    log.keeps_tokens = False
    judge = ScriptedEvaluator(tiny.judge, ruleset=settings.rules)
    steps = make_steps(settings, tuple(tiny.problems(6)), judge, log=log)
    backend = Trained(log)
    done = run_stretches(
        settings, log, steps, backend, evaluate=backend.evaluate, watchers=watchers
    )
    return done, backend, steps


def rows(folder, name):
    """Return a log's rows."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_steps_are_finished_saved_and_evaluated(tmp_path):
    done, backend, _ = train(tmp_path / "run", "guards.collapse=off")
    assert (done.steps, done.stopped, backend.begun) == (5, "", [(0, 0.01)])
    assert backend.evaluated == [2, 4]
    saved = rows(tmp_path / "run", "checkpoints.jsonl")
    assert [(row["step"], row["score"], row["name"]) for row in saved] == [
        (2, 2.0, "at-2"),
        (4, 4.0, "at-4"),
        (5, None, "at-5"),
    ]
    metrics = rows(tmp_path / "run", "metrics.jsonl")
    assert [row["progress/done_frac"] for row in metrics] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert ["time/save_s" in row for row in metrics] == [False, False, True, False, True]
    assert all(row["time/total_s"] > 0 for row in metrics)


def test_rollback_goes_on_in_the_log_as_it_was(tmp_path):
    """Entropy runs out at step 3 each time: three rollbacks, then a stop."""
    made = []

    def watchers(first):
        made.append(first)
        return ()

    folder = tmp_path / "run"
    done, backend, steps = train(folder, "guards.collapse=rollback", watchers=watchers)
    assert done.steps == 4 and done.stopped.startswith("collapse/entropy")
    assert backend.begun == [(0, 0.01), (2, 0.005), (2, 0.0025), (2, 0.00125)]
    assert made == [2, 2, 2] and steps.sampler.seed_epoch == 3
    assert [row["step"] for row in rows(folder, "metrics.jsonl")] == [0, 1, 2, 3]
    assert backend.evaluated == [2], "what is about to be undone is not evaluated"
    assert not (folder / "tokens.jsonl").exists(), "kept as little as before"


def test_stop_without_a_checkpoint_to_go_back_to(tmp_path):
    done, backend, _ = train(
        tmp_path / "run", "guards.collapse=rollback", "guards.least_entropy=0.6"
    )
    assert done.steps == 1 and done.stopped and len(backend.begun) == 1


def test_interrupt_ends_the_stretch_with_a_checkpoint(tmp_path):
    log = RunLog.create(tmp_path / "run", {}, {})
    settings = tiny.config("run.save_every=100", "evaluation.every=1")
    steps = make_steps(settings, tuple(tiny.problems(6)), ScriptedEvaluator(tiny.judge), log=log)
    interrupted = threading.Event()
    progress = Progress(settings, log, steps, interrupted)
    progress.done = 1
    assert not progress.ends and not progress.save_due
    assert not progress.evaluation_due, "without an evaluation"
    interrupted.set()
    assert progress.ends and progress.save_due
    progress.action = "rollback"
    assert progress.ends and not progress.save_due


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(9, 12))
def test_staleness_is_counted_in_updates(versions, now):
    rollouts = [
        played.rollout([0.1], number=place, step=version)  # its answers are of that version
        for place, version in enumerate(versions)
    ]
    found = staleness(rollouts, now)
    ages = [now - version for version in versions]
    assert found["policy/staleness_max"] == max(ages)
    assert found["policy/staleness_mean"] == pytest.approx(sum(ages) / len(ages))
    assert staleness([], now) == {}


def test_lost_learner_is_gone_on_with_as_a_resume(tmp_path):
    """The stretch is lost before a checkpoint, and after one."""
    lost = iter((1, 3, 4))
    goal = [next(lost)]

    class Fails(Trained):
        def __call__(self, progress):
            begun = super().__call__
            finish = progress.finish

            def failing(step, *args, **options):
                if step == goal[0]:
                    goal[0] = next(lost, -1)
                    raise LearnerLost("the server is gone")
                finish(step, *args, **options)

            progress.finish = failing
            return begun(progress)

    class Shown:
        def __init__(self, first):
            self.first, self.evaluations, self.closed = first, [], False

        def scalars(self, step, values):
            assert not self.closed
            if "eval/pass@1" in values:
                self.evaluations.append(step)

        def histograms(self, step, values):
            assert not self.closed

        def close(self):
            self.closed = True

    made = []
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.Trained", Fails)
        done, backend, _ = train(
            folder,
            "guards.collapse=off",
            watchers=lambda first: made.append(Shown(first)) or made[-1:],
        )
    assert [done for done, _ in backend.begun] == [0, 0, 2, 4]
    assert [(each.first, each.evaluations) for each in made] == [(0, [2]), (2, [4]), (4, [])]
    assert done.steps == 5
    train(tmp_path / "unbroken", "guards.collapse=off")
    for name in ("trajectories", "checkpoints"):
        ours, theirs = (rows(each, f"{name}.jsonl") for each in (folder, tmp_path / "unbroken"))
        assert [row.get("key", row.get("step")) for row in ours] == [
            row.get("key", row.get("step")) for row in theirs
        ]
    events = [row for row in rows(folder, "events.jsonl") if row["event"] == "learner_lost"]
    assert [(row["step"], row["number"]) for row in events] == [(1, 1), (3, 2), (4, 3)]
