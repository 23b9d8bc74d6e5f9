"""Workers are lent to one at a time, spread over devices, started late and replaced when unfit."""

import contextlib
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.devices import CudaDevice
from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator, local
from kernelgym.judge.pool import NoDevice, WorkerPool
from kernelgym.types import Job, Kernel, Problem, Status, Verdict

GPU = CudaDevice("Imaginary 9", 8 << 30, (9, 0))
OTHER = CudaDevice("Imaginary 7", 8 << 30, (7, 0))
PROBLEM = Problem("Test/L1/1", "Test", 1, "p", "")


class Staff:
    """Starts workers that are made up, and remembers them."""

    def __init__(self):
        self.workers = []

    def start(self, device):
        worker = SimpleNamespace(device=device, closed=False, asked=0)
        worker.close = lambda: setattr(worker, "closed", True)
        self.workers.append(worker)
        return worker


@pytest.fixture
def staff():
    return Staff()


def test_workers_start_only_when_calls_overlap(staff):
    pool = WorkerPool(["cuda:0"], 3, staff.start)
    for _ in range(5):
        pool.lend(lambda worker: None)
    assert len(staff.workers) == 1
    pool.lend(lambda outer: pool.lend(lambda inner: None))
    assert len(staff.workers) == 2


@given(st.integers(1, 4), st.integers(1, 3))
def test_overlapping_calls_are_spread_evenly_over_devices(count, each):
    staff = Staff()
    devices = [f"cuda:{number}" for number in range(count)]
    pool, lent = WorkerPool(devices, each, staff.start), []

    def deeper(worker):
        lent.append(worker.device)
        counts = [lent.count(device) for device in devices]
        assert max(counts) - min(counts) <= 1
        if len(lent) < count * each:
            pool.lend(deeper)

    pool.lend(deeper)
    assert sorted(lent) == sorted(devices * each)


def test_a_worker_is_never_lent_to_two(staff):
    pool, busy, wrong = WorkerPool(["cuda:0", "cuda:1"], 2, staff.start), set(), []

    def work(worker):
        wrong.extend(busy & {id(worker)})
        busy.add(id(worker))
        worker.asked += 1
        busy.discard(id(worker))

    threads = [threading.Thread(target=lambda: pool.lend(work)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(staff.workers) <= 4
    assert sum(worker.asked for worker in staff.workers) == 40


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_one_whose_answer_is_no_good_is_replaced(staff, error):
    pool = WorkerPool(["cuda:0"], 1, staff.start)

    def fail(worker):
        raise error

    with pytest.raises(error):
        pool.lend(fail)
    assert staff.workers[0].closed
    pool.lend(lambda worker: None)
    assert len(staff.workers) == 2 and not staff.workers[1].closed


def test_workers_lost_when_lent_take_their_device_out_of_service(staff):
    pool = WorkerPool(["cuda:0", "cuda:1"], 1, staff.start, lambda worker: None)

    def lost(worker):
        raise EOFError

    for ask in (lost, lost, lambda worker: (), lost, lost):
        with contextlib.suppress(EOFError):
            pool.lend(ask, counts=True)
    with pytest.raises(EOFError):
        pool.lend(lost)  # what is lost in a build says nothing of the device
    assert all(each.in_service for each in pool.health())  # never three in a row
    with pytest.raises(EOFError):
        pool.lend(lost, counts=True)
    known = {each.device: each for each in pool.health()}
    assert (known["cuda:0"].lost, known["cuda:1"].lost) == (5, 0)
    assert known["cuda:0"].taken_out == 1 and known["cuda:1"].in_service


def test_a_users_mistake_leaves_it_fit(staff):
    pool = WorkerPool(["cuda:0"], 1, staff.start)

    def refuse(worker):
        raise UsageError("too large")

    with pytest.raises(UsageError):
        pool.lend(refuse)
    pool.lend(lambda worker: None)
    assert len(staff.workers) == 1 and not staff.workers[0].closed


def test_a_worker_that_does_not_start_leaves_its_place_free(staff):
    started = []

    def start(device):
        started.append(device)
        if len(started) == 1:
            raise OSError("no memory")
        return staff.start(device)

    pool = WorkerPool(["cuda:0"], 1, start)
    with pytest.raises(OSError):
        pool.lend(lambda worker: None)
    pool.lend(lambda worker: None)


def test_dismissal_ends_the_busy_ones_and_starts_no_more(staff):
    pool = WorkerPool(["cuda:0"], 1, staff.start)
    pool.lend(lambda worker: pool.dismiss())
    assert pool.dismissed and staff.workers[0].closed
    pool = WorkerPool(["cuda:0"], 1, staff.start)
    pool.dismiss()
    with pytest.raises(ValueError, match="closed"):
        pool.lend(lambda worker: None)
    assert len(staff.workers) == 1


def gpus(monkeypatch, *found):
    monkeypatch.setattr(local, "cuda_devices", lambda: found)
    monkeypatch.setattr("kernelgym.devices.cuda_devices", lambda: found)
    monkeypatch.setattr(local, "device_kind", lambda device: "made up")
    monkeypatch.setattr(local, "provenance", lambda device: ("made up",))


class FakeWorker:
    """Judges everything correct, on the device it was started for."""

    def __init__(self, ruleset, timing, folder, isolation, device, ready, beside, budget):
        assert (ready, beside) == (1, 2) and budget > 0
        self.device = device

    def judge(self, problem, kernels, seed):
        correct = {"compiled": True, "trials": 1, "trials_passed": 1}
        return (Verdict(Status.CORRECT, **correct, device=self.device),)

    def close(self):
        pass


def test_one_evaluator_judges_on_all_gpus(monkeypatch, tmp_path):
    gpus(monkeypatch, GPU, GPU, GPU)
    monkeypatch.setattr(local, "WorkerProcess", FakeWorker)
    with LocalEvaluator(devices="all", workers=2, cache_dir=tmp_path) as evaluator:
        assert evaluator.devices == ("cuda:0", "cuda:1", "cuda:2")
        assert evaluator.capabilities.device == "cuda:0"
        kernels = [Kernel(f"NUMBER = {number}", "triton") for number in range(60)]
        found = dict(evaluator.evaluate_iter(Job(PROBLEM, kernel) for kernel in kernels))
    assert sorted(found) == list(range(60)) and all(v.correct for v in found.values())
    assert {verdict.device for verdict in found.values()} <= set(evaluator.devices)


def test_round_without_a_device_in_service_is_left_to_whole_verdicts(monkeypatch, tmp_path):
    def none_left(*_, **__):
        raise NoDevice("no device is in service")

    gpus(monkeypatch, GPU)
    monkeypatch.setattr(WorkerPool, "lend", none_left)
    kernel = Kernel("NUMBER = 1", "triton")
    with LocalEvaluator(devices="all", cache_dir=tmp_path) as evaluator:
        assert evaluator.duel_round(PROBLEM, [kernel, kernel]) is None


@pytest.mark.parametrize(
    "devices, there, told",
    [
        ("all", (GPU, OTHER), "one kind"),
        (["cuda:0", "cuda:0"], (GPU,), "different GPUs"),
        ([], (GPU,), "different GPUs"),
        ("cuda:0", (GPU,), "different GPUs"),
        (["cuda:0", "cuda:1"], (GPU,), "does not exist"),
        (["cpu"], (GPU,), "raise `workers`"),
    ],
)
def test_devices_that_cannot_share_the_work_are_refused(
    monkeypatch, tmp_path, devices, there, told
):
    gpus(monkeypatch, *there)
    with pytest.raises(UsageError, match=told):
        LocalEvaluator(devices=devices, cache_dir=tmp_path)
