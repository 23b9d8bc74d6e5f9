"""A step up to the optimiser: what is played, learned from, counted, and kept in a checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, PolicyFailure, Problem, UsageError, Verdict
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.judge.device_health import DeviceHealth
from kernelgym.prompts.observer import Observer
from kernelgym.records.trajectories import read_records
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Status
from kernelgym_train.config.config import Config
from kernelgym_train.config.settings import read_settings
from kernelgym_train.rollout.sampling import Curriculum, ProblemSampler
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps, TrainingStep
from kernelgym_train.types import Completion, SampleRequest
from support import tiny

OBSERVER = Observer("triton", "cpu", "kernelbench", max_turns=2, examples="zero_shot")


class Answers:
    """Writes its trajectory's number and the problem's into each kernel."""

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return [
            Completion(
                f"<KERNEL>class ModelNew: t = {each.key.trajectory}, {each.seed}</KERNEL>",
                (1, 2),
                (3, each.key.trajectory),
                (-0.5, -0.25),
                "stop",
                0,
            )
            for each in requests
        ]


def hard(number: int) -> Callable[[Problem, Kernel], Verdict]:
    """The first trajectory is right, on all problems but the first few: these nobody solves."""

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        right = "t = 0," in kernel.source and int(problem.name.partition("_")[0]) > number
        return verdict("correct" if right else "wrong")

    return judged


PLAN = (
    *("sampling.problems_per_step=3", "sampling.group_size=2", "sampling.refill_rounds=2"),
    *("run.seed=4", "reward.preset=sparse", "logging.histograms_every=1"),
)
PAIRS = ("sampling.problems_per_step=2", "sampling.refill_rounds=0")


def make(script: Any = None, *settings: str, log: RunLog | None = None) -> Steps:
    return Steps(
        read_settings(Config, {}, (*PLAN, *settings)),
        sampler=ProblemSampler(tiny.problems(6), 4, Curriculum(enabled=False)),
        evaluator=ScriptedEvaluator(hard(0) if script is None else script, ruleset="kernelbench"),
        observer=OBSERVER,
        rules=EpisodeConfig(),
        log=log,
    )


def take(steps: Steps, step: int = 0, **options: Any) -> TrainingStep:
    return asyncio.run(steps.take(step, Answers(), **options))


def test_a_step_plays_its_groups_and_gives_credit() -> None:
    taken = take(make())
    assert len(taken.rollouts) == 6 and taken.credit.groups == 3
    first = [sample for sample in taken.credit.samples if sample.key.trajectory == 0]
    assert all(sample.advantage > 0 for sample in first) and len(first) == 3
    assert taken.metrics["groups/waste"] == 0.0 and taken.metrics["time/model_s"] >= 0.0
    assert len(taken.credit.samples) <= 12


def test_groups_without_signal_are_refilled_and_counted() -> None:
    steps = make(hard(3))  # half of the problems teach nothing
    taken = take(steps)
    flat = [r for r in taken.rollouts if int(r.trajectory.problem.name.partition("_")[0]) <= 3]
    assert flat and taken.metrics["groups/flat"] == len(flat) / 2
    answers = sum(len(r.completions) for r in taken.rollouts)
    assert taken.metrics["groups/waste"] == sum(len(r.completions) for r in flat) / answers
    groups = sorted({rollout.key.problem for rollout in taken.rollouts})
    assert groups == list(range(len(groups))) and len(groups) > 3
    assert taken.metrics["groups/rounds"] > 1.0
    taught = {sample.key.problem for sample in taken.credit.samples}
    assert taught and not taught & {rollout.key.problem for rollout in flat}


def test_the_sampler_learns_from_groups_that_taught_nothing_too() -> None:
    steps = make(lambda problem, kernel: verdict("wrong"))
    for step in range(6):
        take(steps, step)
    known = [rate for rate in steps.sampler.solve_rates.values() if rate is not None]
    assert known and set(known) == {0.0}


def test_what_was_lost_is_counted_wherever_it_was() -> None:
    def failing(problem: Problem, kernel: Kernel) -> Verdict:
        if "t = 1," in kernel.source:
            return Verdict(Status.UNAVAILABLE)
        return verdict("wrong")

    taken = take(make(failing, *PAIRS))
    assert taken.metrics["infra/left_out"] == 2.0 and taken.credit.samples == ()


def test_devices_out_of_service_are_counted() -> None:
    steps = make(lambda problem, kernel: verdict("wrong"), *PAIRS)
    assert isinstance(steps.evaluator, ScriptedEvaluator)
    steps.evaluator.health = (
        DeviceHealth("cuda:0", in_service=False, lost=3),
        DeviceHealth("cuda:1", in_service=True, lost=1),
    )
    found = take(steps).metrics
    assert (found["infra/devices_out"], found["infra/workers_lost"]) == (1.0, 4.0)


class Dropping:
    """Answers as `Answers` does, but fails at one trajectory of each group."""

    def __init__(self, turn: int) -> None:
        self.turn = turn

    async def sample(
        self, requests: Sequence[SampleRequest]
    ) -> AsyncIterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            if (request.key.trajectory, request.key.turn) == (1, self.turn):
                raise PolicyFailure("the server dropped it")
            yield index, Answers().generate([request])[0]


@pytest.mark.parametrize("turn", [0, 1])
def test_failures_of_a_policy_count_nowhere(turn: int, tmp_path: Path) -> None:
    log = RunLog.create(tmp_path / "run", {}, {})
    steps = make(lambda problem, kernel: verdict("wrong"), *PAIRS, log=log)
    taken = asyncio.run(steps.take(0, Dropping(turn)))
    assert taken.metrics["infra/left_out"] == 2.0 and taken.metrics["infra/fail_rate"] == 0.5
    assert taken.metrics["infra/policy_fail_rate"] == 2 / (2 * (3 + turn))
    assert taken.metrics["turn_1/correct_rate"] == 0.0 and taken.credit.samples == ()
    # Of each group: two answers of one trajectory, and of the other those up to the missing one.
    (alarm,) = (each for each in steps.finish(0, taken, {}) if each.guard == "infrastructure")
    assert alarm.action == "stop" and alarm.numbers == {"failures": 2, "answers": 2 * (3 + turn)}
    records = list(read_records(log.folder / "trajectories.jsonl"))
    cut = [record.trajectory for record in records if record.trajectory.ended == "cut"]
    assert [len(each.turns) for each in cut] == [turn] * 2


def test_streaming_policy_is_timed_and_bounded() -> None:
    class Slow(Dropping):
        async def sample(
            self, requests: Sequence[SampleRequest]
        ) -> AsyncIterator[tuple[int, Completion]]:
            await asyncio.sleep(0)
            async for found in super().sample(requests):
                yield found

    bounded = make(None, *PAIRS, "sampling.group_size=3", "sampling.at_once=2")
    found = asyncio.run(bounded.take(0, Slow(9))).metrics
    assert found["policy/in_flight_max"] == 2.0
    assert 0.0 <= found["policy/latency_mean_s"] <= found["policy/latency_max_s"]
    parts = found["time/model_s"] + found["time/judge_s"]
    assert parts == pytest.approx(found["time/play_s"], abs=1e-6)
    assert "policy/in_flight_max" not in take(make()).metrics


def test_the_schedule_decides_the_reward() -> None:
    steps = make(lambda p, k: verdict("wrong"), "reward.preset={0: sparse, 1: stage1}")
    early, late = take(steps, 0), take(steps, 1)
    assert {s for r in early.rollouts for s in r.trajectory.scores} == {0.0}
    assert all(s > 0.5 for r in late.rollouts for s in r.trajectory.scores)


def test_a_state_that_is_loaded_goes_on_as_the_other_would_have() -> None:
    one = make(hard(2))
    for step in range(3):
        one.finish(step, take(one, step), {}, entropy=1.0)
    state = json.loads(json.dumps(one.state()))
    two = make(hard(2))
    two.load(state)
    for step in range(3, 6):
        left, right = take(one, step), take(two, step)
        assert left.rollouts == right.rollouts and left.credit == right.credit
        assert one.finish(step, left, {}, entropy=1.0) == two.finish(step, right, {}, entropy=1.0)
        assert one.state() == two.state()
    with pytest.raises(UsageError, match="seed"):
        other = make()
        other.sampler.seed = 9
        other.load(state)


def test_processes_share_a_step_and_agree_on_it() -> None:
    """Each plays some of the groups; what they gather is what one alone would have played."""
    plan = "sampling.refill_rounds=0"
    alone = take(make(None, plan))
    halves: list[Any] = []
    for rank in range(2):
        take(
            make(None, plan), share=(rank, 2), gather=lambda played: halves.append(played) or played
        )
    joined = sorted((r for half in halves for r in half), key=lambda rollout: rollout.key)
    assert tuple(joined) == alone.rollouts
    whole = take(make(None, plan), share=(0, 2), gather=lambda played: joined)
    assert whole.credit == alone.credit


def test_after_going_back_other_problems_and_seeds_are_drawn() -> None:
    one, two = make(), make()
    two.sampler.seed_epoch += 1
    assert one.seed != two.seed
    left, right = take(one), take(two)
    assert {r.trajectory.turns[0].action for r in left.rollouts}.isdisjoint(
        {r.trajectory.turns[0].action for r in right.rollouts}
    )


def test_alarms_are_events_and_what_is_not_available_is_said_once(tmp_path: Path) -> None:
    log = RunLog.create(tmp_path / "run", {}, {})
    rules = ("guards.least_entropy=0.5", "guards.window=2", "logging.histograms_every=2")
    steps = make(None, *rules, log=log)
    said = []
    for step, entropy in enumerate([1.0, 0.1, 1.0]):
        alarms = steps.finish(step, take(steps, step), {"train/x": 1.0}, entropy=entropy)
        said.append([alarm.guard for alarm in alarms])
    assert said == [["gap"], ["collapse/entropy"], []]
    events = [json.loads(line) for line in (log.folder / "events.jsonl").read_text().splitlines()]
    assert [(e["guard"], e["step"]) for e in events if e["event"] == "alarm"] == [
        ("gap", 0),
        ("collapse/entropy", 1),
    ]
    metrics = [json.loads(line) for line in (log.folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["guards/alarms"] for row in metrics] == [0.0, 1.0, 0.0]
    assert "guards/gap" not in metrics[0], "what is not available is not 0"
    known = make().finish(0, take(make()), {}, gap=0.25)
    assert [alarm.guard for alarm in known] == ["gap"] and known[0].action == "warn"


def test_step_under_way_is_unknown_to_a_checkpoint(tmp_path: Path) -> None:
    log = RunLog.create(tmp_path / "run", {}, {})
    steps = make(log=log)
    take(steps, 0)
    before = json.dumps(steps.state())
    written = (log.folder / "trajectories.jsonl").read_bytes()
    ahead = asyncio.run(steps.play(1, Answers()))
    assert json.dumps(steps.state()) == before
    assert (log.folder / "trajectories.jsonl").read_bytes() == written
    again = make()
    again.load(json.loads(before))
    assert asyncio.run(again.play(1, Answers())).rollouts == ahead.rollouts
    taken = steps.write_down(1, ahead)
    assert taken.rollouts == ahead.rollouts and json.dumps(steps.state()) != before
    assert (log.folder / "trajectories.jsonl").read_bytes() != written
