"""`RayEvaluator` over a made-up cluster: lost actors, mixed machines, a head that is gone."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from kernelgym import RayEvaluator, UsageError
from kernelgym.capabilities import Capabilities
from kernelgym.evaluators import ray_evaluator, ray_keeper
from kernelgym.evaluators.dispatch import MOST_LOST
from kernelgym.evaluators.ray_actor import ActorReport
from kernelgym.evaluators.ray_cluster import HeadSilent, RayCluster
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM, verdict
from kernelgym.types import Job, Status
from support.batches import kernel


class FakeActor:
    """An actor that holds its calls until it is told to answer, or to die."""

    def __init__(self, number: int, machine: str) -> None:
        self.number, self.machine = number, machine
        self.calls: list[tuple[str, Future[Any]]] = []
        self.dead = False

    def die(self) -> None:
        self.dead = True
        for _, future in list(self.calls):
            if not future.done():
                future.set_exception(ConnectionResetError("the process ended"))


class FakeCluster:
    """A cluster in this process. `judge` answers calls; None leaves them open."""

    def __init__(self, machines: list[str], judge: Callable[[FakeActor, Job], Any]) -> None:
        self.machines, self.judge = machines, judge
        self.is_up, self.connections, self.head = True, 0, "10.0.0.5:6379"
        self.actors: list[FakeActor] = []
        self.started_at: list[float] = []
        self.killed: list[FakeActor] = []
        self.starts = True
        self._lock = threading.Lock()

    def connect(self) -> None:
        if not self.is_up:
            raise UsageError("no Ray head answers at 10.0.0.5:6379")
        self.connections += 1

    def disconnect(self) -> bool:
        for actor in self.actors:
            actor.die()
        return True

    def answers(self) -> bool:
        return self.is_up

    def places(self, needs: Any) -> int:
        return len(self.machines)

    def accelerator(self, node: str) -> str:
        return node.upper()

    def start(self, needs: Any, calls: int, *arguments: Any) -> FakeActor:
        with self._lock:
            self.started_at.append(time.monotonic())
            taken = [each.machine for each in self.actors if not each.dead]
            machine = next((each for each in self.machines if each not in taken), "")
            actor = FakeActor(len(self.actors), machine)
            self.actors.append(actor)
        return actor

    def call(self, actor: FakeActor, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        actor.calls.append((method, future))
        if actor.dead or not self.starts:
            actor.die()
        elif method == "report" and actor.machine:
            kind = actor.machine.rstrip("0123456789")
            can = Capabilities(
                "cuda:0", RULESETS["strict"], device_kind=kind, workers=1, provenance=(kind,)
            )
            future.set_result(ActorReport(kind, actor.machine, 0, f"{actor.machine}/cuda:0", can))
        elif method == "close":
            future.set_result(None)
        elif method == "judge":
            answer = self.judge(actor, arguments[0])
            if answer is not None:
                future.set_result(answer)
        return future

    def is_of_the_call(self, error: BaseException) -> bool:
        return False

    def kill(self, actor: FakeActor) -> None:
        self.killed.append(actor)
        actor.die()


def correct(actor: FakeActor, job: Job) -> Any:
    return verdict("correct", message=actor.machine)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function that makes an evaluator over a `FakeCluster`; it is closed after the test."""
    pauses = {"TICK": 0.002, "LOOK": 0.01, "SETTLE": 0.2, "HEAD_GONE": 0.05, "FIRST_PAUSE": 0.002}
    for name, seconds in pauses.items():
        monkeypatch.setattr(ray_keeper, f"_{name}_S", seconds)
    evaluators = []

    def make(
        machines: list[str], judge: Callable[[FakeActor, Job], Any] = correct, **options: Any
    ) -> tuple[RayEvaluator, FakeCluster]:
        cluster = options.pop("cluster", None) or FakeCluster(machines, judge)
        monkeypatch.setattr(ray_evaluator, "RayCluster", lambda address: cluster)
        evaluators.append(RayEvaluator(workers=options.pop("workers", 1), **options))
        return evaluators[-1], cluster

    yield make
    for each in evaluators:
        each.close()


def jobs(count: int) -> list[Job]:
    return [Job(SAMPLE_PROBLEM, kernel("correct", number)) for number in range(count)]


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_capabilities_are_those_of_the_actors_that_are_there(made) -> None:
    evaluator, _ = made(["h100a1", "h100a2"])
    can = evaluator.capabilities
    assert (can.workers, can.device, can.device_kind) == (2, "cuda:0", "h100a")
    assert can.devices == ("h100a1/cuda:0", "h100a2/cuda:0")
    assert [each.in_service for each in evaluator.status.health] == [True, True]


def test_lost_actor_is_replaced_and_each_of_its_jobs_gets_one_verdict(made) -> None:
    lost = itertools.count()

    def judge(actor: FakeActor, job: Job) -> Any:
        if next(lost) % 3 == 0:
            actor.die()
            return None
        return verdict("correct")

    evaluator, cluster = made(["m1", "m2"], judge)
    found = sorted(index for index, _ in evaluator.evaluate_iter(jobs(40)))
    assert found == list(range(40))
    health = evaluator.status.health
    assert sum(each.lost for each in health) >= 13
    assert len(cluster.actors) > 10


def test_actor_that_is_lost_without_a_job_is_replaced(made) -> None:
    evaluator, cluster = made(["m1"])
    assert evaluator.capabilities.workers == 1
    cluster.actors[0].die()
    wait_for(lambda: len(cluster.actors) == 2 and evaluator.status.health[0].in_service)
    assert evaluator.submit(jobs(1)[0]).result(20).correct


def test_lost_actor_is_replaced_though_ending_it_fails(made, monkeypatch) -> None:
    judge, cluster = made(["h1"])
    assert judge.evaluate_many(jobs(1))[0].correct
    kill, failed = cluster.kill, []

    def kill_once(actor: FakeActor) -> None:
        if not failed:
            failed.append(actor)
            raise RuntimeError("the head is busy")
        kill(actor)

    monkeypatch.setattr(cluster, "kill", kill_once)
    cluster.actors[0].die()
    assert judge.evaluate_many(jobs(2))[1].correct
    assert failed == cluster.actors[:1]


def test_job_that_loses_actor_after_actor_is_unavailable_and_others_go_on(made) -> None:
    def judge(actor: FakeActor, job: Job) -> Any:
        if "NUMBER = 0" in job.kernel.source:
            actor.die()
            return None
        return verdict("correct")

    evaluator, cluster = made(["m1"], judge)
    found = evaluator.evaluate_many(jobs(4))
    assert [each.status for each in found] == [Status.UNAVAILABLE] + [Status.CORRECT] * 3
    assert found[0].findings[0].code == "worker_lost" and "process ended" in found[0].message
    assert len(cluster.actors) >= MOST_LOST


def test_restarts_back_off_while_actors_die_without_a_verdict(made, monkeypatch) -> None:
    monkeypatch.setattr(ray_keeper, "_FIRST_PAUSE_S", 0.005)

    def judge(actor: FakeActor, job: Job) -> Any:
        actor.die()

    evaluator, cluster = made(["m1"], judge)
    evaluator.evaluate_many(jobs(1))
    times = cluster.started_at[:6]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] >= 0.005 and gaps[3] >= 0.04


def test_mixed_cluster_is_refused_with_the_list(made) -> None:
    evaluator, cluster = made(["h100x1", "a100x1", "h100x2"])
    waiting = evaluator.submit(jobs(1)[0])
    told = "2 of h100x .device_kind 'H100X'. on h100x1, h100x2; 1 of a100x"
    with pytest.raises(UsageError, match=told):
        _ = evaluator.capabilities
    with pytest.raises(UsageError, match="not alike"):
        waiting.result(20)
    with pytest.raises(UsageError, match="not alike"):
        evaluator.submit(jobs(1)[0]).result(20)
    wait_for(lambda: len(cluster.killed) >= 3)


def test_mixed_cluster_is_ended_though_its_head_is_silent_for_a_moment(made, monkeypatch) -> None:
    cluster = FakeCluster(["h1", "a1"], correct)
    kill, silent = cluster.kill, iter([True])

    def end(actor) -> None:
        if next(silent, False):
            raise HeadSilent("the Ray head does not answer")
        kill(actor)

    monkeypatch.setattr(cluster, "kill", end)
    evaluator, _ = made([], cluster=cluster)
    with pytest.raises(UsageError, match="not alike"):
        _ = evaluator.capabilities
    wait_for(lambda: {actor.machine for actor in cluster.killed} == {"h1", "a1"})


def test_lost_actor_is_ended_by_close(made, monkeypatch) -> None:
    evaluator, cluster = made(["m1"])
    assert evaluator.capabilities.workers == 1
    monkeypatch.setattr(ray_keeper, "_LOOK_S", 20.0)
    monkeypatch.setattr(ray_keeper, "_HEAD_GONE_S", 20.0)
    kill = cluster.kill

    def silent(actor) -> None:
        raise HeadSilent("the Ray head does not answer")

    monkeypatch.setattr(cluster, "kill", silent)
    (first,) = cluster.actors
    first.die()
    wait_for(lambda: "the process ended" in evaluator.status.health[0].reason)
    monkeypatch.setattr(cluster, "kill", kill)
    evaluator.close()
    assert first in cluster.killed


def test_connection_to_a_silent_head_neither_starts_nor_ends_an_actor() -> None:
    pytest.importorskip("ray")
    cluster = RayCluster("127.0.0.1:1")
    cluster._connected, cluster._head = True, "127.0.0.1:1"
    for ask in (lambda: cluster.kill(None), lambda: cluster.start({"CPU": 1.0}, 1)):
        with pytest.raises(HeadSilent, match="does not answer"):
            ask()


def test_actor_that_comes_later_and_differs_is_not_used(made) -> None:
    evaluator, cluster = made(["h100x1"])
    assert evaluator.capabilities.workers == 1
    cluster.machines.append("a100x1")
    wait_for(lambda: any("is not like" in each.reason for each in evaluator.status.health))
    assert {each.message for each in evaluator.evaluate_many(jobs(9))} == {"h100x1"}
    assert evaluator.capabilities.provenance == ("h100x",)


def test_machine_that_joins_is_used(made) -> None:
    evaluator, cluster = made(["m1"])
    assert evaluator.capabilities.workers == 1
    cluster.machines.append("m2")
    wait_for(lambda: evaluator.capabilities.workers == 2)


def test_actors_that_wait_for_machines_are_waited_for_and_no_more_are_started(made) -> None:
    evaluator, cluster = made(["m1"], actors=3)
    assert evaluator.capabilities.workers == 1
    assert evaluator.evaluate_many(jobs(3)) and len(cluster.actors) == 3


def test_head_that_is_gone_keeps_the_jobs_until_it_is_back(made) -> None:
    evaluator, cluster = made(["m1"])
    assert evaluator.capabilities.workers == 1
    cluster.is_up = False
    wait_for(lambda: evaluator.status.health[0].reason == "the Ray head at 10.0.0.5:6379 is gone")
    waiting = evaluator.submit(jobs(1)[0])
    assert not waiting.done()
    cluster.is_up = True
    assert waiting.result(20).correct and cluster.connections == 2


def test_actors_lost_with_the_head_are_ended_once_it_is_back(made, monkeypatch) -> None:
    """Ray would wait for the head, and end the whole process after a minute."""
    monkeypatch.setattr(ray_keeper, "_HEAD_GONE_S", 20.0)
    evaluator, cluster = made(["m1"])
    assert evaluator.capabilities.workers == 1
    asked, kill = [], cluster.kill

    def end(actor) -> None:
        asked.append(cluster.is_up)
        if not cluster.is_up:
            raise HeadSilent("the Ray head does not answer")
        kill(actor)

    monkeypatch.setattr(cluster, "kill", end)
    cluster.is_up = False
    (first,) = cluster.actors
    first.die()
    wait_for(lambda: "the process ended" in evaluator.status.health[0].reason)
    waiting = evaluator.submit(jobs(1)[0])
    assert not waiting.done() and len(cluster.actors) == 1
    cluster.is_up = True
    assert waiting.result(20).correct
    assert asked[-1] and cluster.killed == [first] and cluster.connections == 1


def test_jobs_become_unavailable_with_the_reason_once_patience_ends(made) -> None:
    evaluator, cluster = made(["m1"], patience_s=0.4)
    assert evaluator.capabilities.workers == 1
    cluster.is_up = False
    wait_for(lambda: not evaluator.status.health[0].in_service)
    found = evaluator.submit(jobs(1)[0]).result(20)
    assert found.status is Status.UNAVAILABLE
    assert "the Ray head at 10.0.0.5:6379 is gone" in found.message


def test_actors_that_cannot_be_started_are_told_of_in_one_line(made) -> None:
    cluster = FakeCluster(["m1"], correct)
    cluster.starts = False
    evaluator, _ = made([], cluster=cluster)
    with pytest.raises(UsageError, match=r"no actor can be started.*process ended") as told:
        _ = evaluator.capabilities
    assert "\n" not in str(told.value)


def test_cluster_without_place_is_refused(made) -> None:
    with pytest.raises(UsageError, match="no node with 1 GPU, which one actor needs"):
        made([])


@pytest.mark.parametrize("kill_fails", [False, True])
def test_close_ends_open_jobs_and_later_ones_are_refused(made, monkeypatch, kill_fails) -> None:
    evaluator, cluster = made(["m1"], lambda actor, job: None)
    kill = cluster.kill

    def killed(actor: FakeActor) -> None:
        kill(actor)
        if kill_fails:
            raise RuntimeError("the head is busy")

    monkeypatch.setattr(cluster, "kill", killed)
    open_jobs = [evaluator.submit(job) for job in jobs(3)]
    wait_for(open_jobs[0].running)
    evaluator.close()
    evaluator.close()
    assert [each.result(20).status for each in open_jobs] == [Status.UNAVAILABLE] * 3
    assert cluster.actors[0].dead
    with pytest.raises(UsageError, match="closed"):
        evaluator.submit(jobs(1)[0])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"device": "cuda:3"}, "no device 'cuda:3'"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"actors": 0}, "actors must be at least 1"),
        ({"patience_s": 0}, "patience_s must be above 0"),
        ({"ruleset": "lax"}, "unknown ruleset 'lax'"),
        ({"address": "127.0.0.1:1"}, "no Ray head answers at 127.0.0.1:1|needs Ray"),
        ({"address": "ray://127.0.0.1:1"}, "Ray client, which is not supported|needs Ray"),
    ],
)
def test_argument_that_cannot_be_used_is_a_usage_error(given, told) -> None:
    with pytest.raises(UsageError, match=told):
        RayEvaluator(**given)
