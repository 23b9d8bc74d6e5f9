"""One broken device of several: kernels move and none is blamed."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from kernelgym.devices import CudaDevice
from kernelgym.judge import LocalEvaluator, local
from kernelgym.judge.device_health import LOST_IN_A_ROW
from kernelgym.judge.outcome import JudgeFailure
from kernelgym.judge.pool import WorkerPool
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.types import Job, Kernel, Problem, Status, Verdict

GPU = CudaDevice("Imaginary 9", 8 << 30, (9, 0))
PROBLEM = Problem("Test/L1/1", "Test", 1, "p", "")
KERNEL = Kernel("HARMLESS = 1", "triton")
KILLER = Kernel("KILLER = 1", "triton")


class Devices:
    """Simulated workers; those on `broken` devices fail in `way`.

    Workers on other devices wait for the first failure: a simulated verdict takes no time, so a
    whole batch could be judged before the thread that serves a broken device has run.
    """

    def __init__(self, broken: set[str], way: str = "lost") -> None:
        self.broken, self.way = broken, way
        self.began: list[tuple[str, str]] = []
        self.probed = threading.Semaphore(0)
        self.failed = threading.Event()

    def start(self, *arguments: object) -> Worker:
        device = str(arguments[4] if len(arguments) > 1 else arguments[0])
        if device in self.broken and self.way == "start":
            self.failed.set()
            raise EOFError("the device cannot be used")
        return Worker(self, device)

    def probe(self, worker: Worker) -> Verdict | JudgeFailure:
        try:
            return local._verdict_on(PROBLEM, KERNEL)(worker)  # type: ignore[arg-type]
        finally:
            self.probed.release()


class Worker:
    def __init__(self, devices: Devices, device: str) -> None:
        self.devices, self.device = devices, device

    def judge(
        self, problem: Problem, kernels: Sequence[Kernel], seed: str
    ) -> tuple[Verdict, ...] | JudgeFailure:
        (kernel,) = kernels
        self.devices.began.append((self.device, kernel.language))
        if self.device in self.devices.broken:
            self.devices.failed.set()
            if self.devices.way == "reference":
                return JudgeFailure("the reference could not run: CUDA error")
            raise EOFError("CUDA error")
        if self.devices.broken:
            assert self.devices.failed.wait(30), "no kernel was given to a broken device"
        if kernel == KILLER:
            raise EOFError("killed")
        correct = {"compiled": True, "trials": 1, "trials_passed": 1}
        return (Verdict(Status.CORRECT, **correct, device=self.device),)  # type: ignore[arg-type]

    def close(self) -> None:
        pass


def pool_of(devices: Devices, count: int, clock: list[float] | None = None) -> WorkerPool:
    now = [0.0] if clock is None else clock
    names = [f"cuda:{number}" for number in range(count)]
    return WorkerPool(names, 2, devices.start, devices.probe, lambda: now[0])  # type: ignore[arg-type]


def judge(
    pool: WorkerPool, kernel: Kernel = KERNEL, only: str = ""
) -> Verdict | list[JudgeFailure]:
    return pool.judge(local._verdict_on(PROBLEM, kernel), only=only)


@pytest.fixture
def evaluator_of(monkeypatch, tmp_path):
    """Return a function: simulated devices and count -> evaluator."""

    def make(devices: Devices, count: int) -> LocalEvaluator:
        monkeypatch.setattr(local, "cuda_devices", lambda: (GPU,) * count)
        monkeypatch.setattr("kernelgym.devices.cuda_devices", lambda: (GPU,) * count)
        monkeypatch.setattr("kernelgym.judge.provenance.cuda_devices", lambda: (GPU,) * count)
        monkeypatch.setattr(local, "WorkerProcess", devices.start)
        return LocalEvaluator(devices="all", workers=2, cache_dir=tmp_path)

    return make


@pytest.mark.parametrize("way", ["lost", "reference", "start"])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_broken_device_costs_no_verdict(evaluator_of, count, way):
    with evaluator_of(Devices({"cuda:0"}, way), count) as evaluator:
        jobs = [Job(PROBLEM, Kernel(f"N = {number}", "triton")) for number in range(400)]
        verdicts = evaluator.evaluate_many(jobs)
    assert all(verdict.correct for verdict in verdicts)
    moved = [v for v in verdicts if any(f.code == "device_moved" for f in v.findings)]
    assert moved and all("cuda:0 had failed" in v.findings[-1].message for v in moved)
    broken, *others = evaluator.status.health
    assert broken.moved == broken.lost == len(moved)
    assert not any(each.lost or each.taken_out for each in others)


def test_second_attempt_goes_to_another_device():
    devices = Devices({"cuda:0"})
    pool = pool_of(devices, 3)
    verdict = judge(pool)
    assert isinstance(verdict, Verdict) and verdict.device != "cuda:0"
    assert [device for device, _ in devices.began] == ["cuda:0", verdict.device]


def test_device_out_after_three_is_back_after_a_probe():
    devices, clock = Devices({"cuda:0"}), [0.0]
    pool = pool_of(devices, 2, clock)
    for _ in range(2):
        judge(pool, only="cuda:0")  # two attempts each
    assert devices.probed.acquire(timeout=30)
    health = pool.health()[0]
    assert (health.in_service, health.lost, health.taken_out) in ((False, 3, 1), (False, 4, 1))
    for _ in range(20):
        assert judge(pool).device == "cuda:1"
    devices.broken = set()
    clock[0] = 15.0  # the next probe is due; the next kernel starts it
    judge(pool)
    assert devices.probed.acquire(timeout=30)
    assert isinstance(judge(pool, only="cuda:0"), Verdict)
    assert pool.health()[0].in_service


def test_killer_is_blamed_on_devices_that_compute(evaluator_of):
    devices = Devices(set())
    with evaluator_of(devices, 2) as evaluator:
        for _ in range(5):
            verdict = evaluator.evaluate(PROBLEM, KILLER)
            assert verdict.status is Status.RUNTIME_ERROR
        assert all(each.in_service and not each.taken_out for each in evaluator.status.health)
    references = [device for device, lang in devices.began if lang == REFERENCE_LANGUAGE]
    assert sorted(references[:2]) == ["cuda:0", "cuda:1"], "where it failed, the reference passes"


def test_killer_is_not_blamed_if_the_reference_fails(evaluator_of):
    with evaluator_of(Devices({"cuda:0"}), 2) as evaluator:
        verdict = evaluator.evaluate(PROBLEM, KILLER)
    assert verdict.status is Status.UNAVAILABLE


def test_no_device_in_service_is_unavailable(evaluator_of):
    with evaluator_of(Devices({"cuda:0", "cuda:1"}), 2) as evaluator:
        for number in range(12):
            verdict = evaluator.evaluate(PROBLEM, Kernel(f"N = {number}", "triton"))
            assert verdict.status is Status.UNAVAILABLE
    assert verdict.findings[-1].code == "no_device"
    assert "no device is in service: cuda:0: " in verdict.message


def test_single_device_stays_in_service():
    devices = Devices({"cuda:0"})
    pool = pool_of(devices, 1)
    for _ in range(5):
        assert len(judge(pool)) == 2
    assert pool.health()[0].in_service and pool.health()[0].lost == 10
    assert not devices.probed.acquire(blocking=False)


def test_closed_pool_wakes_callers_without_a_device():
    devices = Devices({"cuda:0", "cuda:1"})
    probing, closed = threading.Event(), threading.Event()

    def hang(worker: Worker) -> Verdict:
        probing.set()
        closed.wait(30)
        raise EOFError("closed")

    pool = WorkerPool(["cuda:0", "cuda:1"], 1, devices.start, hang, lambda: 0.0)  # type: ignore[arg-type]
    for _ in range(LOST_IN_A_ROW):
        pool.judge(local._verdict_on(PROBLEM, KERNEL), attempts=1, only="cuda:0")
    assert probing.wait(30)
    answers: list[object] = []
    waiting = threading.Thread(target=lambda: answers.append(judge(pool, only="cuda:0")))
    waiting.start()
    pool.dismiss()
    waiting.join(30)
    closed.set()
    assert len(answers) == 1 and not isinstance(answers[0], Verdict)


@pytest.mark.slow
@pytest.mark.parametrize("ruleset", ["strict", "kernelbench"])
def test_real_probe_passes_on_a_device_that_computes(tmp_path, ruleset):
    with LocalEvaluator(ruleset=ruleset, cache_dir=tmp_path) as evaluator:
        worker = evaluator._start("cpu")
        try:
            verdict = local._verdict_on(local._PROBE, local._reference_kernel(local._PROBE))(worker)
        finally:
            worker.close()
    assert isinstance(verdict, Verdict) and verdict.correct
