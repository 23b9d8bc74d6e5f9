"""Files of references' times."""

from __future__ import annotations

import dataclasses
import threading
import time
from itertools import product
from pathlib import Path

import pytest

from kernelgym.benchmark import times_file
from kernelgym.benchmark.times_file import TimesFile, measure_all
from kernelgym.errors import UsageError
from kernelgym.reference_time import ReferenceTime, TimeSetting
from kernelgym.types import Problem

HERE = {"cpu": "a processor", "torch": "2.13.0", "triton": "3.7.1"}
EAGER, DEFAULT = TimeSetting("eager"), TimeSetting("default")
ONE, TWO = (
    Problem(f"KernelBench/L1/{n}", "KernelBench", 1, f"{n}_Op", f"class Model: {n}") for n in (1, 2)
)

NEEDS = {"a": 4, "b": 6, "c": 7, "d": None, "e": 12, "f": 3, "g": 3, "h": None, "i": 1}
"""Bytes that problems need, by id."""


def timed(problem: Problem, setting: TimeSetting, mean: float = 2.0) -> ReferenceTime:
    return ReferenceTime(
        problem.id, problem.digest, setting, "cpu", mean, 0.5, 1.0, 3.0, 2.0, 100, 0.0
    )


def failed(problem: Problem, setting: TimeSetting) -> ReferenceTime:
    return ReferenceTime(problem.id, problem.digest, setting, "cpu", message="it fails")


def test_a_stopped_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    path, asked = tmp_path / "times.jsonl", []

    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append((problem.id, setting.mode))
        return (failed if setting is DEFAULT else timed)(problem, setting)

    file = TimesFile.open(path, "cpu", HERE)
    with pytest.raises(KeyboardInterrupt):
        measure_all(file, list(product([ONE, TWO], [EAGER, DEFAULT])), measure)
    again = []

    def rest(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        again.append((problem.id, setting.mode))
        return timed(problem, setting)

    file = TimesFile.open(path, "cpu", HERE)
    found = measure_all(file, list(product([ONE, TWO], [EAGER, DEFAULT])), rest)
    assert [*asked, *again] == [(each.problem_id, each.setting.mode) for each in found]
    assert found[1].message == "it fails" and TimesFile.read(path).times == found


def test_refresh_measures_anew_and_the_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    for mean in (2.0, 5.0):
        file = TimesFile.open(path, "cpu", HERE)
        measure_all(file, [(ONE, EAGER)], lambda p, s, ms=mean: timed(p, s, ms), refresh=True)
    (time,) = TimesFile.read(path).times
    assert time.mean == 5.0


@pytest.mark.parametrize(
    ("device", "machine", "said"),
    [
        ("cuda:0", HERE, "device 'cpu', and this is 'cuda:0'"),
        ("cpu", {**HERE, "torch": "2.14"}, "torch '2.13.0', and this is '2.14'"),
        ("cpu", {**HERE, "cpu": "another"}, "cpu 'a processor', and this is 'another'"),
    ],
)
def test_another_machine_is_refused(tmp_path: Path, device, machine, said) -> None:
    TimesFile.open(tmp_path / "times.jsonl", "cpu", HERE)
    with pytest.raises(UsageError, match=said):
        TimesFile.open(tmp_path / "times.jsonl", device, machine)


@pytest.mark.parametrize("text", ["", '{"version": 2, "machine": {}}\n', '{"problem": 1}\n'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.jsonl").write_text(text)
    with pytest.raises(UsageError, match="not a file of references' times of version 1"):
        TimesFile.read(tmp_path / "odd.jsonl")


def test_several_at_once_share_the_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(times_file, "needed_bytes", lambda problem: NEEDS[problem.id])
    running, together, lock = set(), [], threading.Lock()
    several = [dataclasses.replace(ONE, id=name, source=name) for name in NEEDS]

    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        with lock:
            running.add(problem.id)
            together.append(frozenset(running))
        time.sleep(0.02)
        with lock:
            running.remove(problem.id)
        return timed(problem, setting)

    file = TimesFile.open(tmp_path / "times.jsonl", "cuda:0", HERE)
    found = measure_all(file, list(product(several, [EAGER])), measure, workers=4, memory_bytes=10)
    assert [each.problem_id for each in found] == list(NEEDS)
    assert {each.problem_id for each in TimesFile.read(file.path).times} == set(NEEDS)
    assert any(len(group) > 1 for group in together)
    for group in together:
        needs = [NEEDS[name] for name in group]
        assert len(needs) == 1 or (None not in needs and sum(needs) <= 10), group


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_begins_once_time_is_up(tmp_path: Path, workers: int) -> None:
    begun = []

    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        begun.append(problem.id)
        return timed(problem, setting)

    file = TimesFile.open(tmp_path / "times.jsonl", "cpu", HERE)
    many = [dataclasses.replace(ONE, id=str(n), source=str(n)) for n in range(20)]
    pairs = [(problem, EAGER) for problem in many]
    found = measure_all(file, pairs, measure, workers=workers, until=lambda: len(begun) >= 5)
    assert 5 <= len(begun) < 5 + workers
    assert {each.problem_id for each in found} == set(begun)


def test_a_failing_measurement_ends_the_others(tmp_path: Path) -> None:
    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        if problem.id == "3":
            raise OSError("no process")
        time.sleep(0.01)
        return timed(problem, setting)

    file = TimesFile.open(tmp_path / "times.jsonl", "cpu", HERE)
    many = [dataclasses.replace(ONE, id=str(n), source=str(n)) for n in range(40)]
    with pytest.raises(OSError, match="no process"):
        measure_all(file, list(product(many, [EAGER])), measure, workers=2)
    assert len(TimesFile.read(file.path).times) < 20
