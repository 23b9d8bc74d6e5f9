"""One try at a kernel, by a worker in this process: what it holds while the kernel is called."""

import contextlib
import dataclasses
import gc
import os
import weakref

import pytest
import torch

from kernelgym.errors import DeviceFull
from kernelgym.judge import retries
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.outcome import JudgeOutcome, RunEnd
from kernelgym.judge.processes.zygote_handle import family_of
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.retries import RETRIES, Failure
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launcher import CandidateProcesses
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.worker import worker as worker_module
from kernelgym.judge.worker.worker import Worker
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import AFFINE, CPP, TRITON, replaced

WRONG = replaced(TRITON, "* 2", "* 3")


def ended(status, failure=None):
    return JudgeOutcome(end=RunEnd(status, "it ended", failure=failure or Failure.of(status)))


UNLOADED = ended(Status.COMPILE_ERROR, Failure.MEMORY)
FULL = ended(Status.RUNTIME_ERROR, Failure.MEMORY)


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    (folder / "scratch").mkdir()
    worker = Worker(RULESETS["strict"], True, folder, folder / "scratch")
    yield worker
    worker.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        (TRITON, Status.CORRECT),
        (WRONG, Status.WRONG),
        pytest.param(CPP, Status.CORRECT, marks=pytest.mark.slow),
    ],
    ids=["triton", "wrong", "cpp"],
)
def test_no_call_is_made_beside_somebody_who_is_timed(worker, monkeypatch, kernel, status):
    device_lock, call, held = worker._accelerator.device_lock, CandidateSession.call, []

    def seen(session, *arguments, **options):
        held.append(device_lock.is_shared)
        return call(session, *arguments, **options)

    monkeypatch.setattr(CandidateSession, "call", seen)
    monkeypatch.setattr(worker_module, "bound_own_memory", lambda: None)  # which is the tests', too
    (verdict,) = worker.judge(AFFINE, [kernel])
    assert verdict.status is status, verdict.message
    assert held and all(held)
    assert not device_lock.is_shared


def test_wrong_kernel_is_explained_once_and_judged_once(worker, monkeypatch):
    compare, explained = CandidateSession.compare, []

    def seen(session, *arguments):
        explained.append(arguments[-1])
        return compare(session, *arguments)

    monkeypatch.setattr(CandidateSession, "compare", seen)
    monkeypatch.setattr(worker_module, "bound_own_memory", lambda: None)  # which is the tests', too
    (verdict,) = worker.judge(AFFINE, [WRONG])
    assert verdict.status is Status.WRONG and verdict.mismatch is not None
    assert explained == [True] + [False] * (verdict.trials - 1)


@pytest.mark.parametrize("busy", [True, False])
def test_one_that_ran_out_of_time_on_a_device_kept_busy_by_another_is_judged_again(
    worker, monkeypatch, busy
):
    late, fine = (ended(status) for status in (Status.TIMEOUT, Status.WRONG))
    verdicts = [late, fine]

    def attempt(cases, watched):
        outcome = verdicts.pop(0)
        return (outcome,), outcome.failure, False

    monkeypatch.setattr(worker, "_attempt", attempt)
    monkeypatch.setattr(worker, "_on_cuda", True)
    monkeypatch.setattr(worker._accelerator.recent_kills, "others_since", lambda moment: False)
    looks = [not busy, True]  # it is let go before the kernel gets its second chance
    monkeypatch.setattr(worker._accelerator, "is_ours", lambda: looks.pop(0))
    (verdict,) = worker.judge(AFFINE, [TRITON])
    assert verdict.status is (fine if busy else late).end.status


def test_what_a_problem_was_examined_in_is_given_back_before_another_gets_its_room(
    worker, monkeypatch
):
    accelerator, events = worker._accelerator, []

    @contextlib.contextmanager
    def room(*_):
        events.append("room")
        yield
        events.append("left")

    def heard(kind, name):
        real = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *a, **k: (events.append(name), real(*a, **k))[1])

    monkeypatch.setattr(accelerator, "room", room)
    monkeypatch.setattr(worker_module, "bound_own_memory", lambda: None)
    heard(Reference, "prepare")
    heard(Accelerator, "tidy")
    worker.judge(AFFINE, [WRONG])
    assert events[:4] == ["room", "prepare", "tidy", "left"]


@pytest.fixture
def crowded(worker, monkeypatch):
    """Has a worker share a made-up device; yields what is done there, and what comes of it."""
    done, outcomes = [], []

    def attempt(cases, watched):
        done.append("attempt")
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return (found,), found.failure, watched

    @contextlib.contextmanager
    def alone():
        done.append("alone")
        yield

    monkeypatch.setattr(worker, "_attempt", attempt)
    monkeypatch.setattr(worker._accelerator, "_memory_budget", object())
    monkeypatch.setattr(worker._accelerator, "alone", alone)
    monkeypatch.setattr(worker_module, "bound_own_memory", lambda: None)
    return done, outcomes


@pytest.mark.parametrize(
    "tries",
    [
        [DeviceFull("the reference cannot be timed: CUDA out of memory")],
        [torch.OutOfMemoryError("CUDA out of memory")],
        [RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")],
        [FULL],
        [UNLOADED],
        [ended(Status.WRONG), FULL],  # watched first
        [ended(Status.WRONG), DeviceFull("the reference could not run: out of memory")],
    ],
    ids=["reference", "judge", "library", "kernel", "import", "unwatched", "both"],
)
def test_where_memory_was_too_little_in_company_there_is_a_try_alone(worker, crowded, tries):
    done, outcomes = crowded
    outcomes += [*tries, ended(Status.WRONG)]
    assert worker.judge(AFFINE, [TRITON])[0].status is Status.WRONG
    assert done == [*["attempt" for _ in tries], "alone", "attempt"]


def test_where_it_is_too_little_alone_it_is_the_judges_failure(worker, crowded):
    _, outcomes = crowded
    outcomes += [DeviceFull("CUDA out of memory"), DeviceFull("it still is")]
    with pytest.raises(DeviceFull, match="it still is"):
        worker.judge(AFFINE, [TRITON])


def test_where_it_was_too_little_for_a_second_chance_there_is_a_try_alone(
    worker, crowded, monkeypatch
):
    done, outcomes = crowded
    monkeypatch.setattr(worker, "_on_cuda", True)
    monkeypatch.setattr(worker._accelerator, "canary", lambda: None)
    monkeypatch.setattr(worker._accelerator.recent_kills, "others_since", lambda moment: True)
    outcomes += [
        *[ended(Status.TIMEOUT)] * 2,  # watched first
        DeviceFull("the reference could not run: CUDA out of memory"),
        ended(Status.WRONG),
    ]
    assert worker.judge(AFFINE, [TRITON])[0].status is Status.WRONG
    assert done == ["attempt"] * 3 + ["alone", "attempt"]


@pytest.mark.parametrize(
    ("failure", "on_cuda", "asked"),
    [
        (Failure.WRONG, True, []),
        (Failure.ERROR, True, ["canary"]),
        (Failure.TIMEOUT, True, ["hang", "canary"]),
        (Failure.TIMEOUT, False, []),
    ],
)
def test_unwatched_attempt_is_made_once_the_device_was_checked(
    worker, monkeypatch, failure, on_cuda, asked
):
    did, failures = [], [failure, Failure.NONE]
    monkeypatch.setattr(worker, "_on_cuda", on_cuda)
    monkeypatch.setattr(worker._accelerator, "canary", lambda: did.append("canary"))
    monkeypatch.setattr(worker._accelerator.recent_kills, "note", lambda: did.append("hang"))
    told = []

    def attempt(watched):
        told.append(watched)
        return "an answer", failures.pop(0), watched

    assert worker._retried(attempt, 0.0) == "an answer"
    assert told == [True, False] and did == asked


@pytest.mark.parametrize("row", range(3))
def test_retry_loop_makes_as_many_attempts_as_the_table_says(worker, monkeypatch, row):
    given = RETRIES[row]
    table = (dataclasses.replace(given, attempts=4),)
    monkeypatch.setattr(retries, "RETRIES", table)
    monkeypatch.setattr(worker, "_holds", lambda *_, **__: True)
    monkeypatch.setattr(worker._accelerator, "second_chance", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(worker._accelerator, "alone", contextlib.nullcontext)
    made = []

    def attempt(watched):
        made.append(watched)
        return None, next(iter(given.failures)), watched

    worker._retried(attempt, 0.0)
    assert len(made) == 4


@pytest.mark.parametrize("full", [True, False], ids=["reference", "kernel"])
def test_nothing_of_a_try_in_company_takes_memory_while_there_is_one_alone(
    worker, monkeypatch, full
):
    alive, left = [], []
    begin, expect, call = Reference.__init__, Reference.expect, CandidateSession.call

    def note(reference, *arguments, **options):
        begin(reference, *arguments, **options)
        alive.append(weakref.ref(reference))

    def expected(reference, *arguments):
        found = expect(reference, *arguments)
        alive.append(weakref.ref(found.output))
        return found

    def fails(session, *arguments, **options):
        found = call(session, *arguments, **options)
        if not left:
            if full:
                raise DeviceFull("CUDA out of memory")
            raise Rejected(Status.RUNTIME_ERROR, "CUDA out of memory", failure=Failure.MEMORY)
        return found

    @contextlib.contextmanager
    def alone():
        left.append(sum(ref() is not None for ref in alive))
        yield

    monkeypatch.setattr(Reference, "__init__", note)
    monkeypatch.setattr(Reference, "expect", expected)
    monkeypatch.setattr(CandidateSession, "call", fails)
    monkeypatch.setattr(worker._accelerator, "room", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(worker._accelerator, "_memory_budget", object())
    monkeypatch.setattr(worker._accelerator, "alone", alone)
    monkeypatch.setattr(worker_module, "bound_own_memory", lambda: None)
    gc.collect()
    gc.disable()  # nothing may have to wait for the collector
    try:
        worker.judge(AFFINE, [WRONG])
    finally:
        gc.enable()
    assert alive and left == [0]


def test_on_a_device_that_nobody_shares_it_is_the_judges_failure_at_once(
    worker, crowded, monkeypatch
):
    done, outcomes = crowded
    monkeypatch.setattr(worker._accelerator, "_memory_budget", None)
    outcomes.append(DeviceFull("CUDA out of memory"))
    with pytest.raises(DeviceFull):
        worker.judge(AFFINE, [TRITON])
    assert done == ["attempt"]


@pytest.fixture
def processes(tmp_path):
    made = CandidateProcesses(
        RULESETS["strict"], Accelerator("cpu", tmp_path), tmp_path, tmp_path, "auto", "cpu"
    )
    yield made
    made.close()


@pytest.mark.slow
def test_what_has_begun_to_come_is_waited_for_and_no_second_one_is_started(processes):
    processes.begin("triton")
    begun = processes._begun[family_of("triton", "cpu")]
    processes.begin("triton")
    assert processes._begun == {begun.family: begun} and not begun.tier
    assert processes.zygote("triton") is begun and begun.tier
    processes.begin("triton")
    assert not processes._begun


def test_what_has_begun_to_come_ends_with_the_others(processes):
    processes.begin("cpp")
    (begun,) = processes._begun.values()
    pid = begun._process.popen.pid
    processes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
