"""``kernelgym device``: measure the rates of a device."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from kernelgym.cli.console import print_table
from kernelgym.cli.options import Command
from kernelgym.devices import find_device
from kernelgym.machine import machine

_CLOCKS = ("clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "power.limit")


@dataclass(frozen=True, kw_only=True)
class DeviceCommand(Command):
    """Measure a device: copies, matrix products, launches, and a context's start.

    Reports and prompts compare a kernel with these rates.
    """

    device: Annotated[str, tyro.conf.Positional] = "cpu"
    """Device: cpu, or a GPU such as cuda:0."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Measure the device; return the exit code."""
        from kernelgym.judge.measuring.process import measure_device

        device = find_device(self.device)
        before = _clocks(device)
        rates = measure_device(device)
        clocks = {"clocks_before": before, "clocks_after": _clocks(device)} if before else {}
        found = {"device": device, **machine(device, "torch", "triton"), **clocks, **rates}
        if self.json:
            print(json.dumps(found, indent=2))
        else:
            print_table(("what", "value"), list(_rows(found)), f"{device}, measured")
        return 0


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("name", str(found.get("gpu") or found["cpu"]))]
    rows += [("copies", f"{found['copy_gb_s']:.4g} GB/s, read and written")]
    for precision, rate in found["matmul_tflops"].items():
        told = "not available" if rate is None else f"{rate:.4g} TFLOP/s"
        rows.append((f"matrix product, {precision}", told))
    rows += [
        ("launch of a small operation", f"{found['launch_us']:.4g} us"),
        ("start of a context", f"{found['context_s']:.3g} s"),
    ]
    for name, value in found.get("clocks_after", {}).items():
        rows.append((name, value))
    return rows


def _clocks(device: str) -> dict[str, str]:
    """Return a GPU's clocks and power limit; empty where unknown."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return {}
    query = ("nvidia-smi", f"--id={number or '0'}", f"--query-gpu={','.join(_CLOCKS)}")
    try:
        said = subprocess.run(
            [*query, "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [each.strip() for each in said.stdout.strip().split(",")]
    return dict(zip(_CLOCKS, values, strict=True)) if len(values) == len(_CLOCKS) else {}
