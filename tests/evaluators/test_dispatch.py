"""The dispatcher: order, placement by problem, cancellation, errors, back-pressure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.evaluators.dispatch import MOST_LOST, Dispatcher, SlotLost, as_they_come
from kernelgym.testing import verdict
from kernelgym.types import Job, Kernel, Problem, Verdict

PROBLEMS = [Problem(f"P/L1/{n}", "P", 1, str(n), f"problem {n}") for n in range(6)]


def job(problem: int, number: int = 0) -> Job:
    return Job(PROBLEMS[problem], Kernel(f"kernel {problem} {number}", "cpp"))


class Gate:
    """Judges nothing until it is opened; remembers (slot, problem) of what it judged."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.judged: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def __call__(self, job: Job, seed: str, slot: int) -> Verdict:
        assert self.open.wait(30)
        with self._lock:
            self.judged.append((slot, job.problem.name))
        return verdict("correct", message=f"{job.kernel.source} {seed}".strip())


def messages(futures: list[Future[Verdict]]) -> list[str]:
    return [future.result(30).message for future in futures]


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4), st.booleans())
def test_every_job_gets_its_own_verdict(problems: list[int], slots: int, by_problem: bool) -> None:
    gate = Gate()
    gate.open.set()
    dispatcher = Dispatcher(gate, ["cpu"] * slots, by_problem=by_problem)
    jobs = [job(problem, number) for number, problem in enumerate(problems)]
    futures = [dispatcher.submit(each, f"{number}") for number, each in enumerate(jobs)]
    assert messages(futures) == [f"{each.kernel.source} {n}" for n, each in enumerate(jobs)]
    assert len(gate.judged) == len(jobs)


def test_one_slot_without_problems_keeps_the_order() -> None:
    gate = Gate()
    dispatcher = Dispatcher(gate)
    futures = [dispatcher.submit(job(problem)) for problem in (0, 1, 0, 2, 1, 0)]
    gate.open.set()
    messages(futures)
    assert [name for _, name in gate.judged] == ["0", "1", "0", "2", "1", "0"]


def test_slot_goes_on_with_the_problem_that_it_holds() -> None:
    gate = Gate()
    dispatcher = Dispatcher(gate, ["cpu"], by_problem=True)
    futures = [dispatcher.submit(job(problem, n)) for n, problem in enumerate((0, 1, 2) * 3)]
    gate.open.set()
    messages(futures)
    assert [name for _, name in gate.judged] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3


def test_free_slot_prefers_a_problem_that_no_slot_holds() -> None:
    gates = [Gate(), Gate()]
    dispatcher = Dispatcher(
        lambda job, seed, slot: gates[slot](job, seed, slot), ["cuda:0", "cuda:1"], by_problem=True
    )
    futures = [dispatcher.submit(job(problem)) for problem in range(2)]
    while not all(future.running() for future in futures):
        pass  # each slot has a problem of its own, and waits at its gate
    futures += [dispatcher.submit(job(0, n)) for n in range(1, 4)]
    futures += [dispatcher.submit(job(1, n)) for n in range(1, 4)]
    futures += [dispatcher.submit(job(2, n)) for n in range(3)]
    gates[1].open.set()
    messages(futures[-3:])  # of problem 2, which slot 1 takes once it is done with its own
    gates[0].open.set()
    messages(futures)
    names = [name for _, name in gates[1].judged]
    mine, other = names[0], {"0": "1", "1": "0"}[names[0]]
    assert names[:7] == [mine] * 4 + ["2"] * 3
    assert set(names[7:]) <= {other}


def test_idle_slot_takes_a_problem_that_another_one_holds() -> None:
    both = threading.Barrier(2, timeout=30)

    def judge(job: Job, seed: str, slot: int) -> Verdict:
        both.wait()
        return verdict("correct")

    dispatcher = Dispatcher(judge, ["cpu"] * 2, by_problem=True)
    futures = [dispatcher.submit(job(0, number)) for number in range(4)]
    assert all(future.result(30).correct for future in futures)


def test_job_that_is_passed_over_again_and_again_is_judged() -> None:
    first, count = Gate(), 200
    order: list[str] = []

    def judge(given: Job, seed: str, slot: int) -> Verdict:
        order.append(given.problem.name)
        return first(given, seed, slot)

    dispatcher = Dispatcher(judge, ["cpu"], by_problem=True)
    futures = [dispatcher.submit(job(0, number)) for number in range(2)]
    futures.append(dispatcher.submit(job(1)))
    futures += [dispatcher.submit(job(0, number)) for number in range(2, count)]
    first.open.set()
    messages(futures)
    assert order.index("1") < count // 2


def test_cancelled_job_is_not_judged() -> None:
    gate = Gate()
    dispatcher = Dispatcher(gate)
    futures = [dispatcher.submit(job(problem)) for problem in range(3)]
    while not futures[0].running():
        pass
    assert not futures[0].cancel() and futures[1].cancel()
    gate.open.set()
    messages([futures[0], futures[2]])
    assert [name for _, name in gate.judged] == ["0", "2"]


def test_error_reaches_its_own_job_and_the_slot_goes_on() -> None:
    def judge(job: Job, seed: str, slot: int) -> Verdict:
        if job.problem.name == "1":
            raise RuntimeError("broken")
        return verdict("correct")

    dispatcher = Dispatcher(judge)
    futures = [dispatcher.submit(job(problem)) for problem in range(3)]
    assert futures[0].result(30).correct and futures[2].result(30).correct
    with pytest.raises(RuntimeError, match="broken"):
        futures[1].result(30)


def test_jobs_are_taken_a_bounded_number_ahead() -> None:
    gate, taken = Gate(), []
    dispatcher = Dispatcher(gate)

    def jobs() -> Iterator[Job]:
        for number in range(1000):
            taken.append(number)
            yield job(0, number)

    verdicts = as_they_come(dispatcher.submit, jobs())
    threading.Timer(0.05, gate.open.set).start()
    next(verdicts)
    assert 1 <= len(taken) <= 65
    verdicts.close()
    judged = len(gate.judged)
    assert judged < 1000


def test_caller_that_stops_early_takes_its_jobs_back() -> None:
    permits, judged = threading.Semaphore(1), list[str]()

    def judge(job: Job, seed: str, slot: int) -> Verdict:
        assert permits.acquire(timeout=30)
        judged.append(job.problem.name)
        return verdict("correct")

    dispatcher = Dispatcher(judge)
    verdicts = as_they_come(dispatcher.submit, (job(0, number) for number in range(64)))
    next(verdicts)
    verdicts.close()
    permits.release(100)
    assert dispatcher.submit(job(1)).result(30).correct
    assert judged in (["0", "1"], ["0", "0", "1"])  # a second one may have begun


def test_error_of_one_job_is_raised_and_the_rest_taken_back() -> None:
    def judge(job: Job, seed: str, slot: int) -> Verdict:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        list(as_they_come(Dispatcher(judge).submit, [job(0), job(1)]))


def test_job_waits_until_a_slot_is_added_and_none_goes_to_a_removed_one() -> None:
    gate = Gate()
    gate.open.set()
    dispatcher = Dispatcher(gate, [], by_problem=True)
    first = dispatcher.submit(job(0))
    assert not first.done()
    slot = dispatcher.add_slot("cuda:0")
    assert messages([first])
    dispatcher.remove_slot(slot)
    second = dispatcher.submit(job(1))
    other = dispatcher.add_slot("cuda:1")
    messages([second])
    assert gate.judged == [(slot, "0"), (other, "1")] and slot != other


def test_job_of_a_lost_slot_goes_first_to_another_one() -> None:
    gone = verdict("unavailable", message="the machine is gone")
    order: list[tuple[int, str]] = []
    dispatcher: Dispatcher

    def judge(job: Job, seed: str, slot: int) -> Verdict:
        order.append((slot, job.problem.name))
        if slot == 0:
            dispatcher.remove_slot(0)
            raise SlotLost(gone)
        return verdict("correct")

    dispatcher = Dispatcher(judge)
    futures = [dispatcher.submit(job(problem)) for problem in range(3)]
    while not order:
        pass
    assert not futures[0].cancel() and futures[1].cancel()
    dispatcher.add_slot("")
    assert futures[0].result(30).correct and futures[2].result(30).correct
    assert order == [(0, "0"), (1, "0"), (1, "2")]


def test_job_that_loses_slot_after_slot_is_given_up_and_one_that_had_not_begun_is_not() -> None:
    gone = verdict("unavailable", message="the machine is gone")
    judged = []

    def judge(job: Job, seed: str, slot: int) -> Verdict:
        judged.append(job.problem.name)
        if len(judged) > 3 * MOST_LOST:
            return verdict("correct")
        raise SlotLost(gone if job.problem.name == "0" else None)

    dispatcher = Dispatcher(judge)
    assert dispatcher.submit(job(0)).result(30) == gone and len(judged) == MOST_LOST
    assert dispatcher.submit(job(1)).result(30).correct


def test_waiting_jobs_are_settled_together() -> None:
    gate = Gate()
    dispatcher = Dispatcher(gate)
    futures = [dispatcher.submit(job(problem)) for problem in range(3)]
    while not futures[0].running():
        pass
    futures[1].cancel()
    dispatcher.settle_waiting(RuntimeError("no slot"))
    gate.open.set()
    assert futures[0].result(30).correct and futures[1].cancelled()
    with pytest.raises(RuntimeError, match="no slot"):
        futures[2].result(30)
