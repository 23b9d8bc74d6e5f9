"""The runner: whose job goes next, deadlines, restarts, draining, readiness."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time

import pytest

from kernelgym.serve import runner as module
from kernelgym.serve.judges import Judges
from kernelgym.serve.keys import KeyRing, Tenant
from kernelgym.serve.requests import ProblemShelf
from kernelgym.serve.runner import Runner
from kernelgym.serve.server import canary
from kernelgym.serve.store import JobStore
from kernelgym.testing import ScriptedEvaluator, verdict
from support.served import OneProblem, job


class Tenants(KeyRing):
    """Tenants that the test names."""

    def __init__(self, *tenants: Tenant) -> None:
        super().__init__(None)
        self._by_name = {each.name: each for each in tenants}


class StepByStep(ScriptedEvaluator):
    """Scripted evaluator that judges one kernel for each permit."""

    def __init__(self, **options) -> None:
        self.permits = threading.Semaphore(0)
        super().__init__(self._wait, **options)

    def _wait(self, problem, kernel):
        assert self.permits.acquire(timeout=20)
        return verdict("correct")

    @property
    def order(self) -> list[str]:
        return [each.kernel.source for each in self.judged]


@pytest.fixture
def made(tmp_path):
    with contextlib.ExitStack() as stack:

        def make(evaluator, *tenants, job=None, others=None) -> Runner:
            store = JobStore(tmp_path)
            stack.callback(store.close)
            shelf = ProblemShelf([OneProblem()])
            return Runner(store, Judges(evaluator, others), Tenants(*tenants), shelf, job)

        yield make


def add(runner: Runner, tenant: str, *sources: str, **changes) -> list[str]:
    told = {"ruleset": "", "timing": None, "seed": ""}
    requests = [job(source) | told | changes for source in sources]
    _, ids, _ = runner.store.add(tenant, f"{tenant}{sources}", "d", requests, time.time())
    runner.take(tenant, ids)
    return list(ids)


def until(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "the runner did not get there"
        time.sleep(0.005)


def states(runner: Runner, tenant: str, ids: list[str]) -> list[str]:
    return [runner.store.job(tenant, each).state for each in ids]


def judge_all(runner: Runner, judge: StepByStep, count: int) -> list[str]:
    runner.start()
    for _ in range(count):
        judge.permits.release()
    until(lambda: sum(runner.verdicts.values()) == count)
    runner.drain()
    return judge.order


def test_equal_tenants_take_turns_and_keep_their_own_order(made) -> None:
    judge = StepByStep()
    runner = made(judge)
    add(runner, "a", *(f"a{number}" for number in range(6)))
    add(runner, "b", *(f"b{number}" for number in range(3)))
    wanted = ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4", "a5"]
    assert judge_all(runner, judge, 9) == wanted


def test_tenant_that_comes_is_next_after_the_jobs_that_have_begun(made) -> None:
    judge = StepByStep()
    runner = made(judge)
    first = add(runner, "a", *(f"a{number}" for number in range(4)))
    runner.start()
    until(lambda: states(runner, "a", first)[:2] == ["started", "started"] and judge.order)
    second = add(runner, "b", "b0", "b1")
    until(lambda: states(runner, "b", second)[0] == "started")
    judge.permits.release(6)
    until(lambda: runner.verdicts["correct"] == 6)
    runner.drain()
    assert judge.order == ["a0", "b0", "a1", "b1", "a2", "a3"]
    counts = runner.store.events(runner.store.job("a", first[1]).batch, 0)
    assert sum(each.kind == "verdict" for each in counts) == 4


def test_higher_priority_goes_first(made) -> None:
    judge = StepByStep()
    runner = made(judge, Tenant(name="b", priority=1))
    add(runner, "a", "a0", "a1")
    add(runner, "b", "b0", "b1")
    assert judge_all(runner, judge, 4) == ["b0", "b1", "a0", "a1"]


def test_tenant_runs_no_more_jobs_than_its_limit(made) -> None:
    judge = StepByStep(workers=4)
    runner = made(judge, Tenant(name="a", running=1))
    add(runner, "a", "a0", "a1", "a2")
    add(runner, "b", "b0", "b1")
    runner.start()
    until(lambda: len(judge.judged) == 3)
    assert sorted(judge.order) == ["a0", "b0", "b1"]
    for _ in range(5):
        judge.permits.release()
    until(lambda: runner.verdicts["correct"] == 5)
    runner.drain()


def test_overdue_job_is_unavailable_and_not_judged(made) -> None:
    judge = StepByStep()
    runner = made(judge)
    first = add(runner, "a", "a0", "a1")
    late = add(runner, "a", "late", deadline_s=0.05)
    runner.start()
    until(lambda: states(runner, "a", late) == ["done"])
    found = runner.store.job("a", late[0]).outcome["verdict"]
    assert found["status"] == "unavailable" and found["findings"][0]["code"] == "deadline"
    judge.permits.release(2)
    until(lambda: states(runner, "a", first) == ["done", "done"])
    runner.drain()
    assert judge.order == ["a0", "a1"]


def test_drain_finishes_what_was_begun_and_the_next_runner_judges_the_rest(made) -> None:
    judge = StepByStep()
    runner = made(judge)
    ids = add(runner, "a", *(f"a{number}" for number in range(5)))
    runner.start()
    until(lambda: judge.order == ["a0"])
    drained = threading.Thread(target=runner.drain)
    drained.start()
    until(lambda: len(runner._flying) == 1)
    judge.permits.release()
    drained.join()
    assert states(runner, "a", ids) == ["done"] + ["queued"] * 4
    runner.store.close()
    again = StepByStep()
    assert judge_all(made(again), again, 4) == ["a1", "a2", "a3", "a4"]


def test_jobs_of_a_killed_server_are_judged_once_more(made) -> None:
    judge = StepByStep()
    runner = made(judge)
    ids = add(runner, "a", "a0", "a1", "a2")
    runner.start()
    until(lambda: judge.order == ["a0"])
    judge.permits.release()
    until(lambda: states(runner, "a", ids)[0] == "done")
    runner.store.close()  # as a kill leaves it: a1 and perhaps a2 are begun
    again = StepByStep()
    after = made(again)
    assert after.requeued in (1, 2)
    assert judge_all(after, again, 2) == ["a1", "a2"]
    assert states(after, "a", ids) == ["done"] * 3
    judge.permits.release(2)
    runner.drain()


def test_verdict_that_cannot_be_stored_is_stored_later(made, monkeypatch) -> None:
    runner = made(ScriptedEvaluator())
    finish, failures = runner.store.finish, []

    def full(*arguments):
        if len(failures) < 2:
            failures.append(arguments)
            raise sqlite3.OperationalError("database or disk is full")
        return finish(*arguments)

    monkeypatch.setattr(runner.store, "finish", full)
    ids = add(runner, "a", "a0", "a1")
    runner.start()
    until(lambda: states(runner, "a", ids) == ["done", "done"])
    runner.drain()
    assert len(failures) == 2


def test_problem_that_has_changed_since_is_an_error_of_the_job(made) -> None:
    runner = made(ScriptedEvaluator())
    ids = add(runner, "a", "a0", problem={"id": "Sample/L1/1", "digest": "0"})
    runner.start()
    until(lambda: states(runner, "a", ids) == ["done"])
    runner.drain()
    assert runner.store.job("a", ids[0]).outcome["error"]["code"] == "other_digest"


def test_job_whose_evaluator_cannot_be_made_is_unavailable_and_the_next_one_is_judged(made) -> None:
    def fails(rules, timing):
        raise OSError("no space left on device")

    runner = made(ScriptedEvaluator(), others=fails)
    (bad,) = add(runner, "a", "bad", ruleset="kernelbench")
    (good,) = add(runner, "a", "good")
    runner.start()
    until(lambda: states(runner, "a", [bad, good]) == ["done", "done"])
    runner.drain()
    outcome = runner.store.job("a", bad).outcome["verdict"]
    assert outcome["status"] == "unavailable" and "no space left" in outcome["message"]
    assert "verdict" in runner.store.job("a", good).outcome


def test_idle_runner_is_ready_after_its_canary_and_not_when_that_fails(made, monkeypatch) -> None:
    judge = ScriptedEvaluator()
    runner = made(judge, job=canary(judge.capabilities))
    assert not runner.is_ready
    runner.start()
    until(lambda: runner.is_ready)
    runner.drain()
    assert not runner.is_ready and not runner.store.counts()
    runner.store.close()
    broken = ScriptedEvaluator([verdict("unavailable")])
    runner = made(broken, job=canary(broken.capabilities))
    monkeypatch.setattr(module, "_CANARY_S", 0.0)
    runner.start()
    until(lambda: len(broken.judged) >= 2)
    assert not runner.is_ready
    runner.drain()
