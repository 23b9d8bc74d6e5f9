"""One try at a kernel, by a worker in this process: what it holds while the kernel is called."""

import pytest
from programs import AFFINE, CPP, TRITON, replaced

from kernelgym.judge import judging
from kernelgym.judge.judging import Worker
from kernelgym.judge.session import Session
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status, Verdict

WRONG = replaced(TRITON, "* 2", "* 3")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    (folder / "scratch").mkdir()
    worker = Worker(RULESETS["strict"], True, folder, folder / "scratch")
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("kernel", "status"),
    [(TRITON, Status.CORRECT), (WRONG, Status.WRONG), (CPP, Status.CORRECT)],
    ids=["triton", "wrong", "cpp"],
)
def test_no_call_is_made_beside_somebody_who_is_timed(worker, monkeypatch, kernel, status):
    lease, call, held = worker._accelerator.lease, Session.call, []

    def seen(session, *arguments):
        held.append(lease.is_shared)
        return call(session, *arguments)

    monkeypatch.setattr(Session, "call", seen)
    monkeypatch.setattr(judging, "bound_own_memory", lambda: None)  # which is the tests', too
    verdict = worker.judge(AFFINE, kernel)
    assert verdict.status is status, verdict.message
    assert held and all(held)
    assert not lease.is_shared


@pytest.mark.parametrize("busy", [True, False])
def test_one_that_ran_out_of_time_on_a_device_kept_busy_by_another_is_judged_again(
    worker, monkeypatch, busy
):
    late, fine = (Verdict(status) for status in (Status.TIMEOUT, Status.WRONG))
    verdicts = [late, fine]
    monkeypatch.setattr(worker, "_attempt", lambda *_, **__: (verdicts.pop(0), False))
    monkeypatch.setattr(worker, "_on_cuda", True)
    monkeypatch.setattr(worker._accelerator.hangs, "others_since", lambda moment: False)
    monkeypatch.setattr(worker._accelerator, "is_ours", lambda: not busy)
    verdict = worker.judge(AFFINE, TRITON)
    assert verdict.status is (fine if busy else late).status
