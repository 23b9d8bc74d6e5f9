"""The process of a starting kernel: when it is opened, built anew, replaced and given up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernelgym.errors import DeviceFull
from kernelgym.judge.reference.starting import Construction, StartingKernelFailed
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.starting import StartingProcess
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Status

KERNEL, OTHER = Kernel("# one", "triton"), Kernel("# two", "cpp")
SHAPE = torch.empty(4, device="meta")


class Session:
    """Stands in for a `CandidateSession`, and plays its parts itself."""

    def __init__(self) -> None:
        self.channel = self.model = self.buffers = self
        self.asked: list[Any] = []
        self.ended = False
        self.fails: Rejected | None = None

    def has_ended(self) -> bool:
        return self.ended

    def answered(self, inputs: Any, expected: Any, seed: int, *, fresh: bool) -> Any:
        self.asked.append(("answered", fresh))
        if self.fails is not None:
            raise self.fails
        return "fits", [torch.arange(4.0)]

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.asked.append(name)


@pytest.fixture
def made() -> list[Session]:
    return []


@pytest.fixture
def process(made: list[Session]) -> StartingProcess:
    @contextlib.contextmanager
    def open_process(language: str, source: str) -> Iterator[Session]:
        made.append(Session())
        yield made[-1]
        made[-1].ended = True

    return StartingProcess(open_process, RULESETS["strict"])  # type: ignore[arg-type]


def answer(process: StartingProcess, kernel: Kernel = KERNEL, seed: int = 1) -> torch.Tensor:
    built = BUILT.setdefault(seed, Construction([], seed, None))
    found: torch.Tensor = process.answer(kernel, built, [], SHAPE, 7)
    return found


BUILT: dict[int, Construction] = {}


def test_kept_process_is_built_anew_for_another_construction(
    process: StartingProcess, made: list[Session]
) -> None:
    for seed in (1, 1, 2):
        assert answer(process, seed=seed).tolist() == [0.0, 1.0, 2.0, 3.0]
    (session,) = made
    assert session.asked.count("build") == session.asked.count("vacate") == 2
    assert session.asked.count("load") == 1
    calls = [each[1] for each in session.asked if isinstance(each, tuple)]
    assert calls == [False, True, False], "memory is filled in later calls of a model alone"


def test_process_of_another_kernel_or_one_that_ended_is_replaced(
    process: StartingProcess, made: list[Session]
) -> None:
    answer(process)
    answer(process, OTHER)
    made[1].ended = True
    answer(process, OTHER)
    assert len(made) == 3 and made[0].ended
    process.dismiss()
    assert made[2].ended


@pytest.mark.parametrize(
    ("failure", "raised"), [(None, StartingKernelFailed), (Failure.MEMORY, DeviceFull)]
)
def test_failed_process_is_given_up(
    failure: Failure | None, raised: type[Exception], process: StartingProcess, made: list[Session]
) -> None:
    answer(process)
    made[0].fails = Rejected(Status.RUNTIME_ERROR, "no", failure=failure)
    with pytest.raises(raised, match=r"the starting kernel.*: no"):
        answer(process)
    assert made[0].ended and answer(process).numel() == 4
