"""Results taken as they come: no worker waits for a slower one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernelgym import UnknownName, UsageError
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym_train.mcgs.settings import read_search_settings
from support import searches
from support.searches import rows


class OneSlow:
    """Judges by the table; the first candidate takes as long as three others."""

    def __init__(self) -> None:
        self.first = ""
        self.waited = False
        self._others: set[str] = set()
        self._enough = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, problem: Problem, kernel: Kernel) -> Verdict:
        """Judge one kernel."""
        if kernel.digest != searches.TASK.start.digest:
            with self._lock:
                self.first = self.first or kernel.digest
                if kernel.digest != self.first:
                    self._others.add(kernel.digest)
                if len(self._others) >= 3:
                    self._enough.set()
            if kernel.digest == self.first:
                self.waited = self._enough.wait(timeout=1.0) or self.waited
        return searches.judged(problem, kernel)


@pytest.mark.parametrize("fast", [True, False])
def test_slow_kernel_holds_up_no_worker(fast: bool, tmp_path: Path) -> None:
    judge = OneSlow()
    searches.run(tmp_path, searches.evaluator(judge), 10, deterministic=not fast)
    assert judge.waited == fast
    events = rows(tmp_path)
    sent = [row["key"] for row in events if row["event"] == "proposed"]
    taken = [row["key"] for row in events if row["event"] == "judged"]
    assert sorted(sent) == sorted(taken) and (sent == taken) != fast


@pytest.mark.parametrize("share", [0.4, 0.7, 0.9])
def test_search_of_fast_mode_goes_on_where_it_was_cut(share: float, tmp_path: Path) -> None:
    searches.run(tmp_path, searches.evaluator(OneSlow()), 10, deterministic=False)
    log = tmp_path / "kernels" / "matmul" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: int(share * len(lines))]))
    before = {row["key"] for row in rows(tmp_path) if row["event"] == "judged"}
    judge = searches.evaluator()
    result = searches.run(tmp_path, judge, 10, deterministic=False, resume=True)
    assert result["evaluations"] == 10
    taken = [row["key"] for row in rows(tmp_path) if row["event"] == "judged"]
    assert len(taken) == len(set(taken)) == 10 and before <= set(taken)


def test_unknown_algorithm_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="best_first"):
        searches.run(tmp_path, searches.evaluator(), algo="bestfirst")
    assert not (tmp_path / "kernels").exists()


@pytest.mark.parametrize("given", [-0.1, 1.5])
def test_root_noise_that_is_no_share_is_refused(given: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a share; give 0 to 1"):
        searches.run(tmp_path, searches.evaluator(), root_noise=given)
    assert not (tmp_path / "kernels" / "matmul" / "events.jsonl").exists()
    with pytest.raises(UsageError, match="must be at"):
        read_search_settings([f"root_noise={given}"])


def test_root_noise_changes_a_search(tmp_path: Path) -> None:
    orders = []
    for name, noise in (("a", 0.0), ("b", 0.0), ("c", 0.9)):
        searches.run(tmp_path / name, searches.evaluator(), 8, algo="mcgs", root_noise=noise)
        orders.append([r["key"] for r in rows(tmp_path / name) if r["event"] == "judged"])
    assert orders[0] == orders[1] != orders[2]
