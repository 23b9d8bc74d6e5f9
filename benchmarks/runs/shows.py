"""What the parts of `benchmarks.runs.gpu_shows` share: their choice of work, folder and clock."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import FOLDER
from kernelgym.machine import machine
from kernelgym.records.jsonlines import read_lines
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.types import Problem

__all__ = ["Choice", "Show", "read_rows"]

_RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is judged and timed."""

    noise: tuple[str, ...] = (
        "KernelBench/L1/1",
        "KernelBench/L1/88",
        "KernelBench/L2/12",
        "KernelBench/L2/57",
        "KernelBench/L2/74",
    )
    """Problems whose references are judged as kernels: small inputs, 0.8 to 3 ms a call."""
    noise_language: str = "triton"
    """What the reference is said to be; a language whose kernels the device times."""
    times: int = 40
    """Verdicts on each of these problems."""
    kernels: Path = FOLDER
    """Cases, as in `benchmarks.conformance.cases`."""
    claims: Path = _RESULTS / "conformance_h200.json"
    """What KernelBench said of the cases."""
    references: tuple[str, ...] = (
        *(f"KernelBench/L1/{number}" for number in (1, 2, 10, 12, 17, 40, 50, 72, 88, 95)),
        *(f"KernelBench/L2/{number}" for number in (6, 12, 15, 24, 36, 57, 63, 74, 79, 86)),
    )
    """Problems whose references are timed: at most 0.6 GB of inputs, which are drawn on the CPU."""
    modes: tuple[str, ...] = ("eager", "default", "max-autotune")
    every_mode: tuple[str, ...] = ("KernelBench/L1/40", "KernelBench/L1/88", "KernelBench/L2/57")
    """Those that are timed in every mode that the device has."""


class Show:
    """A folder of results, a device, and the time that is left."""

    def __init__(
        self, out: Path, device: str, seconds: float, choice: Choice, *, workers: int = 4
    ) -> None:
        self.out, self.device, self.choice, self.workers = out, device, choice, workers
        self.seconds = seconds
        self.work = out / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        self.machine = machine(device, "torch", "triton")
        self.suite = KernelBenchSuite()

    def left(self, share: float = 1.0) -> float:
        """Return the seconds until a share of the time has passed."""
        return self._started + share * self.seconds - time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the time."""
        print(f"[{self.seconds - self.left():6.1f} s] {text}", flush=True)

    def problems(self, ids: Sequence[str]) -> list[Problem]:
        """Return problems by their ids."""
        return [self.suite.get(identity) for identity in ids]

    def write(self, name: str, data: dict[str, Any], part: str) -> Path:
        """Write one part's result, with where it comes from."""
        path = self.out / f"{name}.json"
        command = f"python -m benchmarks.runs.gpu_shows --parts {part} --seconds S --out FOLDER"
        told = {"machine": self.machine, "command": command, "device": self.device, **data}
        path.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
        return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; none if it is not there."""
    if not path.exists():
        return []
    return [row for _, row in read_lines(path, on_cut=lambda said: print(said, file=sys.stderr))]
