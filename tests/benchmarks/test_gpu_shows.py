"""The GPU's shows, in miniature on the CPU: every part writes, stops in time and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.page import verdicts
from benchmarks.runs import gpu_shows
from benchmarks.runs.noise import summary
from benchmarks.runs.shows import Choice
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM

PROBLEM = "KernelBench/L1/1"


def row(problem: str, speedup: float, half: float) -> dict[str, object]:
    bounds = {"speedup_low": speedup - half, "speedup_high": speedup + half}
    return {"problem": problem, "status": "correct", "speedup": speedup, "kernel_ms": 1.0, **bounds}


def test_noise_counts_what_is_certain_apart() -> None:
    said = [row("a", 1.01, 0.02), row("a", 0.99, 0.02), row("b", 1.03, 0.01), row("b", 0.97, 0.01)]
    said.append({"problem": "b", "status": "unavailable", "message": "lost"})
    found = summary(said, [{"problem": "a", "status": "rejected"}])
    first, second = found["problems"]
    assert (first["faster"], first["certainly_faster"], first["strict"]) == (1, 0, "rejected")
    assert (second["certainly_faster"], second["certainly_slower"]) == (1, 1)
    assert (second["verdicts"], second["timed"], second["untimed"]) == (3, 2, ["lost"])
    assert found["all"]["faster"]["value"] == 0.5
    assert found["all"]["certainly_faster"]["value"] == 0.25


@pytest.mark.slow
def test_all_parts_run_on_the_cpu(tmp_path: Path, monkeypatch) -> None:
    level = tmp_path / "checkout" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_relu.py").write_text(SAMPLE_PROBLEM.source)
    cases = tmp_path / "kernels"
    cases.mkdir()
    head = f'# /// conformance\n# problem = "{PROBLEM}"\n# language = "triton"\n'
    for name, outcome, kernels in (
        ("right", "correct", SAMPLE_KERNELS),
        ("wrong", "wrong_values", SAMPLE_BROKEN),
    ):
        (cases / f"{name}.py").write_text(
            f'{head}# outcome = "{outcome}"\n# ///\n{kernels["triton"].source}'
        )
    claims = {
        "machine": {},
        "cases": [
            {"case": name, "kernelbench": {"pair": [True, True]}} for name in ("right", "wrong")
        ],
    }
    (tmp_path / "claims.json").write_text(json.dumps(claims))
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path / "checkout"))
    choice = Choice(
        *((PROBLEM,), "cpp", 3, cases, tmp_path / "claims.json", (PROBLEM,)),
        modes=("eager",),
        every_mode=(),
    )
    out = tmp_path / "out"
    given = ["--out", str(out), "--device", "cpu", "--workers", "1", "--reference-workers", "1"]
    assert gpu_shows.main([*given, "--seconds", "1000"], choice) == 0
    noise, judged, times = (
        json.loads((out / f"{name}_gpu.json").read_text())
        for name in ("noise", "import", "baselines")
    )
    assert [(each["timed"], each["strict"]) for each in noise["problems"]] == [(3, "rejected")]
    assert judged["rulesets"]["kernelbench"]["statuses"] == {"correct": 1, "wrong": 1}
    assert judged["rulesets"]["strict"]["claims"] == {"agree": 1, "disagree": 1}
    assert judged["kernelbench_to_strict"] == {"correct -> correct": 1, "wrong -> wrong": 1}
    assert times["measured"] == times["asked"] == 1 and PROBLEM in times["problems"]
    device = json.loads((out / "device_gpu.json").read_text())
    assert device["matmul_tflops"]["fp32"] > 0
    assert "Of 3 verdicts" in verdicts.noise(noise) and "fp32" in verdicts.device(device)
    assert len(list((out / "pages").iterdir())) == 2

    def none(*_: object) -> None:
        raise AssertionError("nothing is left to be done")

    monkeypatch.setattr("benchmarks.runs.reference_times.measure_reference", none)
    resumed = ["--resume", str(out), *given]
    resumed[3] = str(tmp_path / "again")
    assert gpu_shows.main([*resumed, "--seconds", "1000"], choice) == 0
    again = json.loads((tmp_path / "again" / "noise_gpu.json").read_text())
    assert again["verdicts"] == noise["verdicts"]
