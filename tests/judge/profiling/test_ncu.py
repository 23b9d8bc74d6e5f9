"""The profiler's command, its output as text, and what an evaluator refuses to profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernelgym import LocalEvaluator, UsageError
from kernelgym.counters import BOTTLENECKS, METRICS, Counters, bottlenecks
from kernelgym.evaluators.abilities import Profiles
from kernelgym.judge.profiling import ncu
from kernelgym.judge.profiling.profiler import describe
from kernelgym.judge.untrusted import profiled_call
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM

OUTPUT = """\
==PROF== Connected to process 12 (/usr/bin/python3.12)
==PROF== Disconnected from process 12
"ID","Process ID","Kernel Name","Block Size","gpu__time_duration.sum","lts__t_sectors.sum"
"","","","","ns","sector"
"0","12","first","(32, 1, 1)","1,500","n/a"
"1","12","second","(128, 1, 1)","20,000.5","4,096"
"""


def test_output_gives_the_values_of_the_longest_launch() -> None:
    found = ncu.read_output(OUTPUT)
    assert found is not None and (found.kernel, found.launches) == ("second", 2)
    assert found.values == {"gpu__time_duration.sum": 20000.5, "lts__t_sectors.sum": 4096.0}
    assert Counters.from_dict(json.loads(json.dumps({"status": "failed"}))).bottlenecks == {}


@pytest.mark.parametrize("text", ["", "==ERROR== x", "a,b\n1,2\n3,4\n", OUTPUT[:200]])
def test_output_without_values_gives_none(text: str) -> None:
    assert ncu.read_output(text) is None


@pytest.mark.parametrize("forged", ["-1", "nan", "inf", "-inf"])
def test_numbers_that_count_nothing_are_no_values(forged: str) -> None:
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *METRICS))
    row = ",".join(f'"{value}"' for value in ("0", "k", *[forged] * len(METRICS)))
    found = ncu.read_output(f'{head}\n""\n{row}\n')
    assert found is not None and not found.values
    assert set(found.bottlenecks.values()) == {0.0}


def test_field_too_long_for_a_table_gives_none() -> None:
    assert ncu.read_output(OUTPUT.replace("second", "s" * 200_000)) is None


def test_failure_names_what_the_driver_forbids() -> None:
    status, why = ncu.failure("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    assert status == "forbidden" and "NVreg_RestrictProfilingToAdminUsers=0" in why
    assert ncu.failure("x\n==ERROR== The application returned an error code (1)\ny")[0] == "failed"


def test_unknown_metrics_are_named() -> None:
    said = "==ERROR== Failed to find metric regex:^(smsp__old.sum)(\\..*)?$\n"
    assert ncu.unknown_metrics(said) == ("smsp__old.sum",)


def test_command_reads_the_time_of_each_launch_once() -> None:
    made = ncu.command("/bin/ncu", METRICS, ["python", "x.py"])
    named = made[made.index("--metrics") + 1].split(",")
    assert named == list(METRICS) and made[-2:] == ["python", "x.py"]


def test_bottlenecks_are_shares_whatever_the_values() -> None:
    for values in ({}, dict.fromkeys(METRICS, 1e9), dict.fromkeys(METRICS, 0.0)):
        found = bottlenecks(values)
        assert tuple(found) == BOTTLENECKS and all(0.0 <= v <= 1.0 for v in found.values())


def test_bottlenecks_of_a_streaming_kernel_name_memory() -> None:
    values = {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 92.0}
    found = bottlenecks(values | {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 20.0})
    assert max(found, key=lambda name: found[name]) == "gmem" and found["gmem"] == 0.92


def test_bank_conflicts_of_an_idle_cache_are_no_limit() -> None:
    """Values of a small product of matrices on an H100."""
    values = {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 1152.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 4410.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed": 0.38,
        "l1tex__throughput.avg.pct_of_peak_sustained_active": 10.86,
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": 0.23,
        "lts__throughput.avg.pct_of_peak_sustained_elapsed": 6.43,
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 1.97,
    }
    found = bottlenecks(values)
    assert found["smem"] < 0.05 < found["gmem"] < found["overlap"]


def test_descriptions_give_back_shapes_types_and_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [torch.randn(2, 3), torch.tensor([4, 7]), [1.5, "x"], None, torch.ones(2).half()]
    told = json.loads(json.dumps([describe(value) for value in given]))
    real = {name: getattr(torch, name) for name in ("randn", "randint")}
    for name, function in real.items():
        monkeypatch.setattr(
            torch, name, lambda *a, _f=function, **k: _f(*a, **{**k, "device": "cpu"})
        )
    made = [profiled_call.made(value) for value in told]
    assert made[0].shape == (2, 3) and made[2:4] == [[1.5, "x"], None]
    assert made[1].dtype == torch.int64 and 4 <= int(made[1].min()) <= int(made[1].max()) <= 7
    assert made[4].dtype == torch.float16
    with pytest.raises(TypeError, match="set, which a profile cannot make"):
        describe({1})


def test_profile_of_a_kernel_that_was_not_judged_is_refused() -> None:
    with LocalEvaluator() as evaluator:
        profiles = evaluator.ability(Profiles)
        assert profiles is not None
        with pytest.raises(UsageError, match="was not found correct"):
            profiles.profile(SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"])


@pytest.mark.parametrize(("first", "asked"), [("forbidden", 1), ("measured", 3), ("failed", 2)])
def test_refusal_counts_only_before_counters_were_read(
    first: str, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After "failed" the second profile is refused, so that the third asks no worker."""
    problem, kernel = SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"]
    answers = [Counters(first), Counters("forbidden"), Counters("measured")]
    given: list[Counters] = []
    with LocalEvaluator(cache_dir=tmp_path) as evaluator:
        evaluator._correct.add((problem.digest, kernel.digest))
        monkeypatch.setattr(
            evaluator._pool, "lend", lambda _: given.append(answers[len(given)]) or given[-1]
        )
        found = [evaluator.profile(problem, kernel).status for _ in answers]
    assert len(given) == asked
    assert found[-1] == ("measured" if first == "measured" else "forbidden")


@pytest.mark.slow
def test_profile_on_the_cpu_is_unavailable() -> None:
    with LocalEvaluator() as evaluator:
        assert evaluator.evaluate(SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"]).correct
        found = evaluator.profile(SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"])
    assert found.status == "unavailable" and "only GPUs" in found.message
