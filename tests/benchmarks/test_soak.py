"""The soak's choice of kernels, what it calls a fault, and what its watch can see."""

from __future__ import annotations

import ast
import collections
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.soak import cases, run, watch
from kernelgym.testing import verdict
from kernelgym.types import Status

DEVICES = ("cpu", "cuda:0")
NOTHING_LEFT: dict[str, list[str]] = {"processes": [], "files": []}


@given(st.integers(1, 500), st.integers(0, 2**32), st.sampled_from(DEVICES))
def test_one_in_five_is_hostile_and_a_seed_fixes_the_order(
    count: int, seed: int, device: str
) -> None:
    known = cases.load_soak_cases(device)
    drawn = cases.draw(known, count, seed)
    assert len(drawn) == count
    assert sum(case.hostile for case in drawn) == round(count / 5)
    assert drawn == cases.draw(known, count, seed)


@pytest.mark.parametrize("device", DEVICES)
def test_a_long_soak_leaves_no_case_out(device: str) -> None:
    known = cases.load_soak_cases(device)
    counts = collections.Counter(case.name for case in cases.draw(known, 500, 3))
    assert counts.keys() == {case.name for case in known}
    assert len(counts) == len(known)


@pytest.mark.parametrize("device", DEVICES)
def test_cases_are_python_that_asks_for_a_verdict_on_the_kernel(device: str) -> None:
    statuses = {status.value for status in Status} - {"unavailable", "no_kernel"}
    for case in cases.load_soak_cases(device):
        assert case.fair and case.fair <= statuses, case.name
        if case.name != "syntax_error":
            ast.parse(case.kernel.source)
    with pytest.raises(SyntaxError):
        named = {case.name: case for case in cases.load_soak_cases(device)}
        ast.parse(named["syntax_error"].kernel.source)


def _result(status: str, samples: list[float]) -> dict[str, object]:
    drawn = [case for case in cases.load_soak_cases("cpu") if case.name == "raises"]
    rows = run.by_case(drawn, [(0, verdict(status))])
    return {"cases": rows, "samples": [{"caller_mib": value} for value in samples]}


def test_parts_add_up_and_keep_their_faults() -> None:
    part = {"verdicts": 10, "hostile": 2, "wall_s": 1.5, "faults": []}
    both = run.total([part, {**part, "faults": ["left behind"]}])
    assert (both["verdicts"], both["hostile"], both["wall_s"]) == (20, 4, 3.0)
    assert both["faults"] == ["left behind"] and len(both["parts"]) == 2


def test_kernels_judged_together_leave_each_other_memory() -> None:
    alone, together = (cases.load_soak_cases("cuda:0", alone=one) for one in (True, False))
    assert {c.name for c in alone} - {c.name for c in together} == {"hoards_device_memory"}


def test_a_clean_run_has_no_faults() -> None:
    found = [(0, verdict("runtime_error"))]
    result = _result("runtime_error", [50, 60, 61, 61, 62, 62])
    assert run.faults(result, 1, found, NOTHING_LEFT) == []


@pytest.mark.parametrize(
    ("status", "started", "left", "samples", "said"),
    [
        ("correct", 1, {}, [], "raises"),
        ("unavailable", 1, {}, [], "raises"),
        ("runtime_error", 2, {}, [], "missing \\[1\\]"),
        ("runtime_error", 1, {"files": ["/x/y"]}, [], "/x/y"),
        ("runtime_error", 1, {}, [50, 60, 70, 80, 90, 100], "grew"),
    ],
)
def test_whatever_ought_not_to_be_is_a_fault(
    status: str, started: int, left: dict[str, list[str]], samples: list[float], said: str
) -> None:
    faults = run.faults(_result(status, samples), started, [(0, verdict(status))], left)
    assert len(faults) == 1
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(faults[0])


def test_the_watch_sees_processes_and_files_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_GONE_S", 0.2)  # they will not go
    scratch, temporary = tmp_path / "scratch", tmp_path / "tmp"
    for folder in (scratch, temporary):
        folder.mkdir()
    watching = watch.Watch(tmp_path, "cpu")
    left_open = open(os.devnull)
    # One that has left the tree, known by its environment only, and one below us.
    leave = """
import subprocess
null = subprocess.DEVNULL
print(subprocess.Popen(["sleep", "60"], stdout=null, stderr=null).pid)
"""
    orphan = subprocess.run(
        [sys.executable, "-c", leave],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    child = subprocess.Popen(["sleep", "60"])
    (scratch / "deep").mkdir()
    (scratch / "deep" / "file").write_text("x")
    try:
        left = watching.left(scratch, temporary)
    finally:
        os.kill(int(orphan.stdout), 9)
        child.kill()
        child.wait()
        left_open.close()
    pids = {int(line.split()[0]) for line in left["processes"]}
    assert pids == {int(orphan.stdout), child.pid}
    assert left["files"] == [str(scratch / "deep"), str(scratch / "deep" / "file")]
    assert left["open_files"]


def test_the_watch_sees_nothing_where_nothing_is_left(tmp_path: Path) -> None:
    watching = watch.Watch(tmp_path, "cpu")
    subprocess.run(["true"], env={"HOME": str(tmp_path)}, check=True)
    left = watching.left(tmp_path, tmp_path)
    assert left["processes"] == left["files"] == left["open_files"] == []
