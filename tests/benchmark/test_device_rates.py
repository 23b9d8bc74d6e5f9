"""Limits of a run's problems, from measured rates and counted operations."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kernelgym.benchmark import report
from kernelgym.benchmark.device_rates import DeviceRates, limits_of
from kernelgym.benchmark.numbers.roofline import RooflineLimit
from kernelgym.benchmark.recorded_runs import RecordedRun, read_run
from kernelgym.benchmark.times_file import TimesFile, measure_all
from kernelgym.cli import main
from kernelgym.errors import UsageError
from kernelgym.reference_time import ReferenceTime, TimeSetting
from kernelgym.suites.kernelbench_facts import fact
from kernelgym.types import Problem
from support.benchmark_runs import eval_run, problem
from support.html_pages import parsed

RATES = {
    **{"gpu": "NVIDIA H100 80GB HBM3, 580.1", "cpu": "a processor", "copy_gb_s": 2000.0},
    "matmul_tflops": {"fp32": 50.0, "tf32": 400.0, "fp16": 700.0, "bf16": None},
}


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(RATES))
    return path


def run_of(tmp_path: Path, gpu: str = "NVIDIA H100 80GB HBM3, 570.0") -> RecordedRun:
    return dataclasses.replace(
        read_run(eval_run(tmp_path / "run", {"A": "4 2"})), machine={"gpu": gpu}
    )


def counted(path: Path, asked: Problem, operations: float) -> Path:
    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        times = {"mean": 2.0, "trials": 9, "operations": operations}
        return ReferenceTime(problem.id, problem.digest, setting, "cuda:0", **times)

    measure_all(
        TimesFile.open(path, "cuda:0", {"cpu": "x"}),
        [(asked, TimeSetting())],
        measure,
    )
    return path


def test_rates_are_those_of_the_file(rates: Path) -> None:
    found = DeviceRates.read(rates)
    assert found.device == "NVIDIA H100 80GB HBM3" and found.bytes_per_s == 2e12
    assert found.operations_per_s == {"fp32": 5e13, "tf32": 4e14, "fp16": 7e14}


@pytest.mark.parametrize("text", ["", "[]", '{"cpu": "x"}', '{"cpu": 1, "matmul_tflops": 3}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"holds no device's rates|is not JSON"):
        DeviceRates.read(path)


def test_operations_were_counted_or_are_known(tmp_path: Path, rates: Path) -> None:
    run, measured = run_of(tmp_path), DeviceRates.read(rates)
    (name,) = run.planned
    assert limits_of(run, measured) == {name: RooflineLimit(0.0, 5e13, 2e12)}
    times = counted(tmp_path / "times.jsonl", run.episodes[0].record.trajectory.problem, 3e9)
    assert limits_of(run, measured, [times])[name].operations == 3e9
    product = fact("KernelBench/L1/1")
    assert product is not None
    played = run.episodes[0]
    known = dataclasses.replace(problem(), id=product.problem_id, name=product.name)
    asked = dataclasses.replace(played.record.trajectory, problem=known)
    other = dataclasses.replace(played, record=dataclasses.replace(played.record, trajectory=asked))
    limits = limits_of(dataclasses.replace(run, episodes=(other,)), measured)
    assert limits[product.problem_id].operations == pytest.approx(2 * 4096**3, rel=1e-3)


def test_a_half_problem_has_the_half_rate(tmp_path: Path, rates: Path) -> None:
    run = run_of(tmp_path)
    played = run.episodes[0]
    half = dataclasses.replace(problem(), source="import torch\nKIND = torch.float16\n")
    asked = dataclasses.replace(played.record.trajectory, problem=half)
    other = dataclasses.replace(played, record=dataclasses.replace(played.record, trajectory=asked))
    (limit,) = limits_of(
        dataclasses.replace(run, episodes=(other,)), DeviceRates.read(rates)
    ).values()
    assert limit.operations_per_s == 7e14


def test_another_devices_rates_are_refused(tmp_path: Path, rates: Path) -> None:
    with pytest.raises(UsageError, match="judged on 'NVIDIA H200'"):
        limits_of(run_of(tmp_path, "NVIDIA H200, 570.0"), DeviceRates.read(rates))


def test_report_tells_shares_and_scores(tmp_path: Path, rates: Path, capsys) -> None:
    folder = eval_run(tmp_path / "run", {"A": "4", "B": "2"})
    path = folder / "trajectories.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        for turn in row["turns"]:
            turn["verdict"]["timing"] |= {"floor_ms": 0.05, "moved_bytes": 10**8}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = tmp_path / "page.html"
    given = ["report", str(folder), "--rates", str(rates), "--html", str(page)]
    assert main(given) == 0
    assert "SOL score of correct kernels" in capsys.readouterr().out
    assert "share of the roofline" in parsed(page.read_text()).text
    card = report(folder, rates=rates).to_dict()["runs"][0]["tables"]["all problems"]
    timings = [row["turns"][0]["verdict"]["timing"] for row in rows]
    shares = [0.05 / timing["kernel_ms"] for timing in timings]
    assert card["roofline_share"]["value"] == pytest.approx(sum(shares) / 2)
    assert card["sol_score"]["n"] == 2 and 0.5 < card["sol_score"]["value"] < 1.0
    plain = report(folder).to_dict()["runs"][0]["tables"]["all problems"]
    assert "sol_score" not in plain and "roofline_share" not in plain
    assert main(["report", str(folder), "--rates", str(folder / "plan.json")]) == 2
    assert "holds no device's rates" in capsys.readouterr().err
