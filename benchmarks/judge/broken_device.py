"""What one broken device of several costs: moves, blame, seconds.

Run ``python -m benchmarks.judge.broken_device [--devices 2,4,8] [--jobs 400] [--out FILE]``.

The evaluator, its pool, its retries and its blame are those that judge; the workers are simulated,
and seconds last `SCALE` of a second. A worker starts in 5 s and judges in 1 to 3 s. One device is
broken from the start, in one of several ways. One kernel in twenty is hostile: it ends every worker
that judges it, and should be blamed for that; all others are honest.

Not covered: how a real device breaks; ``tests/gpu/test_broken_device_gpu.py`` breaks one of two.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.machine import machine
from kernelgym.devices import CudaDevice
from kernelgym.judge import LocalEvaluator, local, provenance
from kernelgym.judge.outcome import JudgeFailure
from kernelgym.judge.pool import WorkerPool
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.types import Job, Kernel, Problem, Status, Verdict

__all__ = ["BREAKS", "simulate"]

SCALE = 0.01
WORKERS = 4
BROKEN = "cuda:1"
HOSTILE = "# ends its worker"
GPU = CudaDevice("Simulated", 80 << 30, (9, 0))
PROBLEM = Problem("Test/L1/1", "Test", 1, "p", "class Model: ...")
_START_S, _FAIL_S, _DEADLINE_S = 5.0, 0.5, 1743.0
_LIVES = 20
_ILL_S = 60.0


@dataclass(eq=False)
class Machine:
    """Simulated devices, and the worker processes on them."""

    breaks: str
    seed: int = 0
    began: float = field(default_factory=time.monotonic)
    first_failure_s: float | None = None
    verdicts: int = 0
    """Verdicts of the broken device, for one that dies after some."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def now(self) -> float:
        """Return the simulated seconds since the beginning."""
        return (time.monotonic() - self.began) / SCALE

    def fails(self, device: str, moment: str) -> bool:
        """Return True if a device fails at this moment."""
        if device != BROKEN:
            return False
        broken = {
            "starts": moment == "start",
            "reference": moment == "judge",
            "hangs": moment == "judge",
            "one in three": moment == "judge" and self.random.random() < 1 / 3,
            "dies": self.verdicts >= _LIVES,
            "recovers": moment == "start" and self.now() < _ILL_S,
        }[self.breaks]
        if broken and self.first_failure_s is None:
            self.first_failure_s = self.now()  # of a device that hangs: when it began to
        return broken


class SimulatedWorker:
    """Stands in for `WorkerProcess`, and fails as its device does."""

    def __init__(self, machine: Machine, device: str) -> None:
        self.machine, self.device = machine, device
        self.closed = threading.Event()
        if machine.fails(device, "start"):
            self._pass(_FAIL_S)
            raise EOFError("JudgeError: the device cannot be used: CUDA error: unknown error")
        self._pass(_START_S)

    def _pass(self, seconds: float) -> None:
        if self.closed.wait(seconds * SCALE):
            raise EOFError("closed")

    def judge(
        self, problem: Problem, kernels: Sequence[Kernel], seed: str
    ) -> tuple[Verdict] | JudgeFailure:
        """Return a correct verdict, after a while, if the device computes."""
        machine = self.machine
        if machine.fails(self.device, "judge"):
            if machine.breaks == "hangs":
                self._pass(_DEADLINE_S)
                raise TimeoutError("timed out")
            self._pass(_FAIL_S)
            if machine.breaks == "reference":
                return JudgeFailure("JudgeError: the reference could not run: CUDA error")
            raise EOFError("CUDA error: unspecified launch failure")
        self._pass(machine.random.uniform(1.0, 3.0))
        (kernel,) = kernels
        if HOSTILE in kernel.source and kernel.language != REFERENCE_LANGUAGE:
            raise EOFError("it exited with -9")
        machine.verdicts += self.device == BROKEN
        right = Verdict(Status.CORRECT, compiled=True, trials=1, trials_passed=1)
        return (dataclasses.replace(right, device=self.device),)

    def close(self) -> None:
        """End the worker."""
        self.closed.set()


BREAKS = {
    "starts": "no worker starts",
    "reference": "the reference fails",
    "one in three": "one attempt in three is lost",
    "dies": f"dies after {_LIVES} verdicts",
    "recovers": f"no worker starts for {_ILL_S:.0f} s",
    "hangs": "hangs until the worker's deadline",
}
"""Ways in which the broken device is broken, and what they are."""


def jobs(count: int) -> list[Job]:
    """Return different kernels, one in twenty of them hostile."""
    return [
        Job(PROBLEM, Kernel(f"N = {n}{f'  {HOSTILE}' if n % 20 == 7 else ''}", "triton"))
        for n in range(count)
    ]


def simulate(breaks: str, devices: int, count: int, seed: int = 0) -> dict[str, Any]:
    """Judge a batch with one broken device; return the counts."""
    simulated = Machine(breaks, seed)

    def start(*arguments: Any) -> SimulatedWorker:
        return SimulatedWorker(simulated, arguments[4])

    def found() -> tuple[CudaDevice, ...]:
        return (GPU,) * devices

    with ExitStack() as stack:
        for module, name, stand_in in _stand_ins(start, found, simulated.now):
            stack.enter_context(mock.patch.object(module, name, stand_in))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        evaluator = stack.enter_context(
            LocalEvaluator(devices="all", workers=WORKERS, cache_dir=folder)
        )
        batch = jobs(count)
        came: list[tuple[bool, Verdict]] = []
        out_s, after = None, 0
        for index, verdict in evaluator.evaluate_iter(batch):
            came.append((HOSTILE in batch[index].kernel.source, verdict))
            if out_s is None and any(each.taken_out for each in evaluator.status.health):
                out_s, after = simulated.now(), len(came)
        health = next(each for each in evaluator.status.health if each.device == BROKEN)
    honest = [verdict for hostile, verdict in came if not hostile]
    later = [verdict for hostile, verdict in came[after:] if not hostile]
    hostile = [verdict for hostile, verdict in came if hostile]
    delay = None
    if out_s is not None and simulated.first_failure_s is not None and health.taken_out:
        delay = round(max(0.0, out_s - simulated.first_failure_s), 1)
    return {
        "breaks": breaks,
        "devices": devices,
        "honest": len(honest),
        "blamed": sum(v.status is Status.RUNTIME_ERROR for v in honest),
        "unavailable": sum(not v.valid for v in honest),
        "later_valid": round(sum(v.valid for v in later) / len(later), 4) if later else None,
        "hostile": len(hostile),
        "hostile_blamed": sum(v.status is Status.RUNTIME_ERROR for v in hostile),
        "moved": health.moved,
        "lost": health.lost,
        "taken_out": health.taken_out,
        "in_service_at_end": health.in_service,
        "out_after_s": delay,
        "batch_s": round(simulated.now()),
    }


def _stand_ins(
    start: Callable[..., SimulatedWorker],
    found: Callable[[], tuple[CudaDevice, ...]],
    clock: Callable[[], float],
) -> Iterator[tuple[Any, str, Any]]:
    """Yield the names that are replaced while devices are simulated, by module."""
    from kernelgym import devices

    yield local, "WorkerProcess", start
    yield local, "cuda_devices", found
    yield devices, "cuda_devices", found
    yield provenance, "cuda_devices", found
    yield local, "WorkerPool", functools.partial(WorkerPool, clock=clock)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--devices", default="2,4,8", help="how many devices")
    parser.add_argument("--jobs", type=int, default=400, help="kernels in a batch")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    recorded, rows = machine(), []
    for breaks in BREAKS:
        for devices in map(int, options.devices.split(",")):
            rows.append(simulate(breaks, devices, options.jobs))
            print(rows[-1], flush=True)
    if options.out:
        result = {"machine": recorded, "scale": SCALE, "workers": WORKERS, "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
