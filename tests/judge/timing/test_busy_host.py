"""Real kernels timed beside other programs, and kernels that would gain by the rule for these."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kernelgym import LocalEvaluator
from kernelgym.types import Timing
from support.programs import AFFINE, CPP, replaced

pytestmark = pytest.mark.slow


@pytest.fixture
def spinning() -> Iterator[None]:
    """Keep two processors busy."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for program in programs:
        program.kill()
        program.wait()


def overlap(one: Timing, other: Timing) -> bool:
    return max(one.speedup_low, other.speedup_low) <= min(one.speedup_high, other.speedup_high)


@pytest.mark.usefixtures("spinning")
def test_verdicts_beside_spinning_programs_agree_or_are_untimed(timing: LocalEvaluator) -> None:
    verdicts = [timing.evaluate(AFFINE, CPP, seed=f"{number:02x}") for number in range(5)]
    told = [verdict.timing for verdict in verdicts if verdict.timing is not None]
    assert all(verdict.timed or verdict.distrusted for verdict in verdicts)
    assert all(overlap(one, other) for one, other in itertools.combinations(told, 2))


def test_kernel_that_sleeps_is_charged_for_it(timing: LocalEvaluator) -> None:
    asleep = replaced(CPP, "auto out", "usleep(2000);\n  auto out")
    asleep = replaced(asleep, "torch::Tensor affine", "#include <unistd.h>\ntorch::Tensor affine")
    verdict = timing.evaluate(AFFINE, asleep)
    assert verdict.timing is not None and verdict.timing.kernel_ms > 1.9


def test_own_threads_that_wait_are_charged(timing: LocalEvaluator) -> None:
    """Two threads for each processor delay each other: the kernel is charged, not the host."""
    body = """const auto work = [](int ms) {
    timespec now, begun;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < ms * 1000000L);
  };
  std::vector<std::thread> rivals;
  const unsigned count = 2 * std::thread::hardware_concurrency();
  while (rivals.size() + 1 < count) rivals.emplace_back(work, 8);
  work(8);
  for (auto& rival : rivals) rival.join();
  auto out"""
    rivals = replaced(CPP, "auto out", body)
    includes = "#include <time.h>\n#include <thread>\n#include <vector>\n"
    rivals = replaced(rivals, "torch::Tensor affine", f"{includes}torch::Tensor affine")
    verdict = timing.evaluate(AFFINE, rivals)
    assert verdict.timing is not None, verdict
    assert verdict.timing.kernel_ms > 15.0
