"""The trainer holds the device lock while its model works on the judge's GPU, and no longer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kernelgym import Kernel, Problem, Verdict
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.rollout.device_share import DeviceHold, SharingPolicy
from kernelgym_train.types import Completion, SampleRequest


class Lock:
    """A lock that writes down what becomes of it."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextlib.contextmanager
    def of(self, device: str) -> Iterator[None]:
        self.log.append(f"take {device}")
        try:
            yield
        finally:
            self.log.append("release")

    def share(self, model: str = "cuda:0", judge: str = "cuda:0") -> DeviceHold:
        return DeviceHold(
            model, judge, lock=self.of, settle=lambda device: self.log.append(f"settle {device}")
        )


WHOLE = ["take cuda:0", "settle cuda:0", "release"]


@pytest.mark.parametrize(
    ("model", "judge", "shares"),
    [
        ("cuda:0", "cuda:0", True),
        ("cuda:0", "cuda", True),
        ("cuda:1", "cuda:0", False),
        ("cuda:0", "cpu", False),
        ("cpu", "cpu", False),
        ("cpu", "cuda:0", False),
    ],
)
def test_lock_is_taken_on_a_shared_gpu_only(model: str, judge: str, shares: bool) -> None:
    lock = Lock()
    with lock.share(model, judge).held():
        pass
    assert lock.log == (WHOLE if shares else [])


def test_lock_taken_twice_is_held_once() -> None:
    lock = Lock()
    share = lock.share()
    share.take()
    share.take()
    share.release()
    share.release()
    assert lock.log == WHOLE


def test_lock_is_released_when_settling_fails() -> None:
    lock = Lock()

    def broken(device: str) -> None:
        raise RuntimeError("the GPU is lost")

    share = DeviceHold("cuda:0", "cuda:0", lock=lock.of, settle=broken)
    with pytest.raises(RuntimeError, match="lost"), share.held():
        pass
    assert lock.log == ["take cuda:0", "release"]


def test_policy_that_fails_releases_the_lock() -> None:
    class Failing:
        def generate(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
            raise MemoryError

    lock = Lock()
    with pytest.raises(MemoryError):
        SharingPolicy(Failing(), lock.share()).generate([])
    assert lock.log == WHOLE


def test_lock_is_free_while_kernels_are_judged(tmp_path: Any) -> None:
    import asyncio

    from kernelgym_train.launch.assembly import make_steps
    from support import tiny

    lock = Lock()

    class Answers:
        def generate(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
            lock.log.append("sample")
            return [
                Completion("<KERNEL>class ModelNew: a = 1</KERNEL>", (1,), (2,), None, "stop", 0)
                for _ in requests
            ]

    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        lock.log.append("judge")
        return verdict("wrong")

    settings = tiny.config("sampling.refill_rounds=0")
    steps = make_steps(
        settings,
        tuple(tiny.problems(6)),
        ScriptedEvaluator(judge, ruleset=settings.rules),
        device_share=lock.share(),
    )
    asyncio.run(steps.take(0, Answers()))
    inside = ["take cuda:0", "sample", "settle cuda:0", "release"]
    judged = [place for place, what in enumerate(lock.log) if what == "judge"]
    assert judged and lock.log.count("sample") == 2
    for place in judged:
        before = [what for what in lock.log[:place] if what != "judge"]
        assert len(before) % 4 == 0 and before == inside * (len(before) // 4)
