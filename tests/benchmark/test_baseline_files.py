"""Baselines of a run's problems, from files of ours and in KernelBench's layout."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from kernelgym.benchmark.baseline_files import (
    baseline_file,
    baseline_mode,
    baselines_of,
    write_baselines,
)
from kernelgym.benchmark.recorded_runs import RecordedRun, read_run
from kernelgym.benchmark.times_file import TimesFile, measure_all
from kernelgym.errors import UsageError
from kernelgym.reference_time import MODES, ReferenceTime, TimeSetting
from kernelgym.types import Problem
from tests.support.benchmark_runs import eval_run, problem

HERE = {"cpu": "a processor", "torch": "2.13.0", "triton": "3.7.1"}
EAGER, DEFAULT = TimeSetting("eager"), TimeSetting("default")
ONE, TWO = (
    Problem(f"KernelBench/L1/{n}", "KernelBench", 1, f"{n}_Op", f"class Model: {n}") for n in (1, 2)
)


def timed(problem: Problem, setting: TimeSetting, mean: float = 2.0) -> ReferenceTime:
    return ReferenceTime(
        problem.id, problem.digest, setting, "cpu", mean, 0.5, 1.0, 3.0, 2.0, 100, 0.0
    )


def failed(problem: Problem, setting: TimeSetting) -> ReferenceTime:
    return ReferenceTime(problem.id, problem.digest, setting, "cpu", message="it fails")


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_a_file_that_names_it(mode: str) -> None:
    assert baseline_mode(Path(baseline_file(mode))).removeprefix("inductor_") == mode


def test_kernelbenchs_layout(tmp_path: Path) -> None:
    times = [timed(ONE, EAGER), timed(ONE, DEFAULT, 1.5), timed(TWO, EAGER), failed(TWO, DEFAULT)]
    paths = write_baselines(tmp_path, "H100", [ONE, TWO], times, "NVIDIA H100")
    names = ["baseline_time_torch.json", "baseline_time_torch_compile_inductor_default.json"]
    assert [path.name for path in paths] == names
    assert paths[0].parent == tmp_path / "results" / "timing" / "H100"
    eager, compiled = (json.loads(path.read_text()) for path in paths)
    assert list(eager["level1"]) == ["1_Op.py", "2_Op.py"]
    assert list(compiled["level1"]) == ["1_Op.py"]
    assert eager["level1"]["1_Op.py"] == {
        **{"mean": 2.0, "std": 0.5, "min": 1.0, "max": 3.0, "num_trials": 100},
        **{"hardware": "H100", "device": "NVIDIA H100"},
    }


@pytest.mark.parametrize(
    ("problem", "settings", "said"),
    [
        (Problem("Synthetic/L1/1", "Synthetic", 1, "x", "1"), [EAGER], "'Synthetic/L1/1'"),
        (Problem("KernelBench/L1/1@small", "KernelBench", 1, "x", "1"), [EAGER], "@small"),
        (ONE, [EAGER, TimeSetting("eager", "bf16")], "one precision and TF32 setting a folder"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(tmp_path: Path, problem, settings, said) -> None:
    times = [timed(problem, setting) for setting in settings]
    with pytest.raises(UsageError, match=said):
        write_baselines(tmp_path, "H100", [problem], times, "cpu")
    assert not list(tmp_path.iterdir())


def judged(tmp_path: Path, gpu: str = "") -> RecordedRun:
    """Return a run of two problems under the strict rules."""
    folder = eval_run(tmp_path / "run", {"A": "2", "B": "2"})
    (folder / "machine.json").write_text(json.dumps({"gpu": gpu} if gpu else {}))
    return read_run(folder)


def own_file(tmp_path: Path, setting: TimeSetting, gpu: str = "") -> Path:
    path = tmp_path / "times.jsonl"
    file = TimesFile.open(path, "cpu", {**HERE, "gpu": gpu} if gpu else HERE)
    measure_all(file, list(product([problem("A")], [setting])), timed)
    return path


def test_times_of_ours_are_baselines(tmp_path: Path) -> None:
    found = baselines_of(judged(tmp_path), [own_file(tmp_path, EAGER)])
    ((identity, (time,)),) = found.items()
    assert (identity, time.mean_ms, time.std_ms, time.trials) == ("Test/L1/A", 2.0, 0.5, 100)
    assert time.mode == "eager"


@pytest.mark.parametrize(
    ("setting", "gpu", "said"),
    [
        (TimeSetting("eager", "bf16"), "", "times in bf16 with TF32 off.*judged in own with TF32"),
        (EAGER, "NVIDIA H100, 570.1", "measured on 'NVIDIA H100'.*judged on 'NVIDIA H200'"),
    ],
)
def test_times_in_another_setting_are_refused(tmp_path: Path, setting, gpu, said) -> None:
    run = judged(tmp_path, "NVIDIA H200, 570.1" if gpu else "")
    with pytest.raises(UsageError, match=said):
        baselines_of(run, [own_file(tmp_path, setting, gpu)])


def test_untimed_entries_of_an_export_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "baseline_time_torch.json"
    rows = {"A.py": {"mean": 0.0, "num_trials": 0}, "B.py": {"mean": 1.5, "num_trials": 3}}
    path.write_text(json.dumps({"level1": rows}))
    assert list(baselines_of(judged(tmp_path), [path])) == ["Test/L1/B"]
