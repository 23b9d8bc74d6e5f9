"""Rounds of several kernels on a GPU: timed in turns under one hold of the device lock."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym import duel
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.timing.windows import TimingWindows
from kernelgym.judge.worker.worker import Worker
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.types import Kernel, Problem, Status

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROBLEM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0
def get_inputs():
    return [torch.randn({rows}, 4096)]
def get_init_inputs():
    return []
"""

TRITON = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def double_relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.maximum(x, 0.0) * 2.0, mask=at < n)

class ModelNew(nn.Module):
    calls = 0
    def forward(self, x):
        y = torch.empty_like(x)
        self.calls += 1
        for _ in range(TIMES):
            double_relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def kernel(times: int = 1, then: str = "") -> Kernel:
    """Return a kernel that launches `times` times, with lines put in before its launches."""
    source = TRITON.replace("TIMES", str(times))
    counted = "        self.calls += 1\n"
    return Kernel(source.replace(counted, counted + then), "triton")


FAST, SLOW = kernel(), kernel(times=4)
TIRED = kernel(then="        if self.calls > 40:\n            return x * 3.0\n")
CRASHES = kernel(then="        raise RuntimeError('no')\n")


def relu(rows: int = 4096) -> Problem:
    return Problem("t/double_relu", "t", 1, "double_relu", PROBLEM.format(rows=rows))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    workers = []

    def made(rules: Ruleset = RULESETS["strict"]) -> Worker:
        (tmp_path / "scratch").mkdir(exist_ok=True)
        workers.append(Worker(rules, True, tmp_path, tmp_path / "scratch", device="cuda:0"))
        return workers[-1]

    yield made
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("rows", [64, 4096, 1 << 15])
def test_round_times_all_kernels_under_one_hold(make, monkeypatch, rows) -> None:  # type: ignore[no-untyped-def]
    """From kernels of microseconds, captured in graphs, to inputs of half a gigabyte."""
    worker, quiet, pairs, holds = make(), Accelerator.quiet, TimingWindows.pairs, []

    @contextlib.contextmanager
    def seen(accelerator, patience_s):  # type: ignore[no-untyped-def]
        with quiet(accelerator, patience_s) as ours:
            holds.append(0)
            yield ours

    def counted(windows, **options):  # type: ignore[no-untyped-def]
        if holds:  # the first windows may run beside other kernels
            holds[-1] += 1
        return pairs(windows, **options)

    monkeypatch.setattr(Accelerator, "quiet", seen)
    monkeypatch.setattr(TimingWindows, "pairs", counted)
    verdicts = worker.judge(relu(rows), [FAST, SLOW, FAST])
    assert verdicts is not None
    assert all(v.correct and v.timing is not None for v in verdicts), verdicts
    assert len(holds) == 1 and holds[0] >= max(v.timing.samples for v in verdicts)
    assert all(v.trials_passed == v.trials > 1 and v.custom_share is None for v in verdicts)
    assert len({v.seed for v in verdicts}) == 1
    first, slow, again = (v.timing.kernel_ms for v in verdicts)
    assert first == pytest.approx(again, rel=0.15)
    assert slow > 2.0 * first
    assert not [f.code for v in verdicts for f in v.findings if f.code == "clock_mismatch"]


def test_round_agrees_with_whole_verdicts(make) -> None:  # type: ignore[no-untyped-def]
    worker = make()
    whole = [worker.judge(relu(), [each])[0].timing.kernel_ms for each in (FAST, SLOW)]
    together = [v.timing.kernel_ms for v in worker.judge(relu(), [FAST, SLOW])]
    assert together == pytest.approx(whole, rel=0.15)


@pytest.mark.parametrize("side", [0, 1])
def test_kernel_wrong_while_timed_is_wrong_in_a_round(make, side) -> None:  # type: ignore[no-untyped-def]
    kernels = [FAST, FAST]
    kernels[side] = TIRED
    verdicts = make().judge(relu(), kernels)
    assert verdicts is not None and verdicts[side].status in (Status.WRONG, Status.REJECTED)
    other = verdicts[1 - side]
    assert other.correct and other.timing is None and "compared with failed" in other.message


def test_crash_in_a_round_is_left_to_whole_verdicts(make) -> None:  # type: ignore[no-untyped-def]
    worker = make()
    assert worker.judge(relu(), [FAST, CRASHES]) is None
    (verdict,) = worker.judge(relu(), [FAST])
    assert verdict.correct and verdict.timing is not None


def test_kernels_that_do_not_fit_together_have_no_round(make, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    worker = make()
    budget = worker._accelerator._memory_budget
    monkeypatch.setattr(budget, "total_bytes", 3 << 30)  # one kernel takes 1.5 GiB and more
    assert worker.judge(relu(), [FAST, SLOW, FAST]) is None
    assert worker.judge(relu(), [FAST])[0].correct


def test_round_has_a_compiled_baseline(tmp_path: Path) -> None:
    strict = RULESETS["strict"]
    timing = dataclasses.replace(strict.timing, baseline="compile")
    rules = dataclasses.replace(strict, timing=timing)
    with LocalEvaluator("cuda:0", rules, cache_dir=tmp_path) as evaluator:
        assert evaluator.duel_round(relu(), [FAST, SLOW]) is None, "none is prepared"
        prepared = evaluator.prepare_baseline(relu())
        assert prepared.prepared, prepared.message
        verdicts = evaluator.duel_round(relu(), [FAST, SLOW])
    assert verdicts is not None
    assert {v.timing.baseline for v in verdicts} == {"compile"}


def test_duel_on_a_gpu_takes_rounds(tmp_path: Path) -> None:
    with LocalEvaluator("cuda:0", cache_dir=tmp_path) as evaluator:
        rounds = []
        real = evaluator.duel_round

        def seen(*arguments, **options):  # type: ignore[no-untyped-def]
            rounds.append(real(*arguments, **options))
            return rounds[-1]

        evaluator.duel_round = seen  # type: ignore[method-assign]
        found = duel(evaluator, relu(), SLOW, FAST)
    assert found.decided == "second" and found.ratio > 2.0
    assert len(rounds) == found.rounds - 1 and None not in rounds
