"""Rounds of several kernels timed in turns, by a worker in this process."""

import contextlib

import pytest

from kernelgym import duel
from kernelgym.evaluators.base import EvaluatorWrapper
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.timing.windows import TimingWindows
from kernelgym.judge.worker.worker import Worker
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import AFFINE, CPP, TRITON, problem, replaced

pytestmark = pytest.mark.slow

ASLEEP = replaced(CPP, "auto out", "usleep(2000);\n  auto out")
ASLEEP = replaced(ASLEEP, "torch::Tensor affine", "#include <unistd.h>\ntorch::Tensor affine")
TIRED = replaced(CPP, "auto out", "static int calls = 0;\n  ++calls;\n  auto out")
TIRED = replaced(TIRED, ") * 2 + bias", ") * (calls > 40 ? 3 : 2) + bias")
CRASHES = replaced(CPP, "auto out", "std::abort();\n  auto out")
COUNTS = problem(
    "self.calls += 1\nreturn torch.relu(x) * 2 + b + 0 * self.calls",
    "torch.randn(37, 131), torch.randn(131)",
    init="self.register_buffer('calls', torch.zeros(()))",
    arguments="x, b",
    name="counts",
)


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    (folder / "scratch").mkdir()
    worker = Worker(RULESETS["strict"], True, folder, folder / "scratch")
    yield worker
    worker.close()


def test_a_round_holds_the_lock_once(worker, monkeypatch):
    exclusive, pairs, holds, held = DeviceLock.exclusive, TimingWindows.pairs, [], []

    @contextlib.contextmanager
    def seen(lock):
        with exclusive(lock):
            holds.append(0)
            yield
            held.append(holds[-1])
            holds[-1] = -1

    def counted(windows, **how):
        holds[-1] += 1  # fails where the lock is not held
        return pairs(windows, **how)

    monkeypatch.setattr(DeviceLock, "exclusive", seen)
    monkeypatch.setattr(TimingWindows, "pairs", counted)
    verdicts = worker.judge(AFFINE, [CPP, ASLEEP])
    assert verdicts is not None and all(verdict.correct for verdict in verdicts)
    assert all(verdict.trials_passed == verdict.trials > 1 for verdict in verdicts)
    assert len(held) == 1 and held[0] >= max(len(v.timing.windows) for v in verdicts)
    assert verdicts[1].timing.kernel_ms > 1.9 > verdicts[0].timing.kernel_ms
    assert verdicts[0].seed == verdicts[1].seed != ""
    assert verdicts[0].stages == verdicts[1].stages
    assert 0.0 < verdicts[0].stages.timing_s < verdicts[0].wall_s


@pytest.mark.parametrize("side", [0, 1])
def test_a_kernel_that_is_wrong_while_timed_is_wrong(worker, side):
    """Right in every judged call, it is found out by a timed output."""
    kernels = [CPP, CPP]
    kernels[side] = TIRED
    verdicts = worker.judge(AFFINE, kernels)
    assert verdicts is not None
    assert verdicts[side].status is Status.WRONG and "while it was timed" in verdicts[side].message
    other = verdicts[1 - side]
    assert other.correct and other.timing is None and "compared with failed" in other.message


@pytest.mark.parametrize(
    ("about", "kernel"),
    [(AFFINE, CRASHES), (COUNTS, CPP), (AFFINE, TRITON)],
    ids=["crash", "state", "triton"],
)
def test_what_whole_verdicts_have_to_tell(worker, about, kernel):
    assert worker.judge(about, [CPP, kernel]) is None


class Whole(EvaluatorWrapper):
    """Judges kernels one by one only."""

    def ability(self, kind):
        return None


class Counted(EvaluatorWrapper):
    """Counts rounds."""

    def __init__(self, evaluator):
        super().__init__(evaluator)
        self.rounds = []

    def duel_round(self, problem, kernels, *, seed=""):
        self.rounds.append(self.evaluator.duel_round(problem, kernels, seed=seed))
        return self.rounds[-1]


def test_quick_and_slow_duels_agree(timing):
    counted = Counted(timing)
    quick = duel(counted, AFFINE, CPP, ASLEEP)
    slow = duel(Whole(timing), AFFINE, CPP, ASLEEP)
    assert quick.decided == slow.decided == "first"
    assert len(counted.rounds) == quick.rounds - 1 and None not in counted.rounds
    assert max(quick.low, slow.low) <= min(quick.high, slow.high)


def test_worker_that_will_time_starts_the_references_zygote_with_the_kernels(worker, monkeypatch):
    begun = []

    def stop(_):
        raise InterruptedError

    monkeypatch.setattr(worker._processes, "begin", begun.append)
    monkeypatch.setattr(worker._accelerator, "check_room", stop)
    with pytest.raises(InterruptedError):
        worker.judge(AFFINE, [CPP])
    assert begun == ["cpp", REFERENCE_LANGUAGE]
