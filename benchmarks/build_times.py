"""What building an extension costs, by the way it is written: unseen, known, and stage by stage.

Run ``python benchmarks/build_times.py [--out FILE] [--only WORD] [--split]``. Needs nvcc and no
GPU: builds are for compute capability 9.0 unless there is a device, in which case the libraries are
loaded and their results compared, too. The binding unit, compiled once per toolchain, is there
before the clock starts and its time is reported apart. ``--split`` runs nvcc once more on what the
builder gave it, with ``--time``, one stage after another: what the builder runs side by side.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import resource
import shutil
import subprocess
import tempfile
import time
import uuid
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from build_patterns import PATTERNS, Pattern
from machine import machine

from kernelgym.judge.compiling.builder import Builder, Built
from kernelgym.judge.compiling.compiler_process import Running
from kernelgym.judge.compiling.cuda_toolkit import find_nvcc
from kernelgym.judge.compiling.source import CUDA_UNIT
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS
from kernelgym.rulesets import Limits

GOAL_S = 8.0
KNOWN_GOAL_S = 0.2


class Watched(Builder):
    """A builder that keeps what it gave nvcc: the first command, and a copy of its folder."""

    kept: tuple[list[str], Path] | None = None
    compilers = 0

    def _start(self, command: list[str], scratch: Path, allowed_s: float = 0.0) -> Running:
        self.compilers += "-c" in command
        if CUDA_UNIT in command and self.kept is None:
            copy = Path(tempfile.mkdtemp(prefix="unit-")) / "unit"
            shutil.copytree(scratch, copy)
            moved = [part.replace(str(scratch), str(copy)) for part in command]
            self.kept = moved[moved.index(find_nvcc_in(moved)) :], copy
        return super()._start(command, scratch, allowed_s)


def find_nvcc_in(command: list[str]) -> str:
    """Return nvcc's path, which its arguments follow."""
    return next(part for part in command if part.rpartition("/")[2] == "nvcc")


def cpu_s() -> float:
    """Seconds of CPU that finished children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def split(kept: tuple[list[str], Path]) -> dict[str, float]:
    """Run nvcc by itself on a unit; milliseconds by stage."""
    command, folder = kept
    subprocess.run([*command, "--time", "times.csv"], cwd=folder, check=True, capture_output=True)
    with (folder / "times.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    shutil.rmtree(folder.parent)
    return {
        f"{row[1].strip()} {row[2].strip()[-12:]}".split(" /")[0]: float(row[-2]) for row in rows
    }


def runs(built: Built) -> None:
    """Load a library and compare its function with torch's.

    Raises:
        SystemExit: If they differ.
    """
    import torch

    loader = ExtensionFileLoader(built.module, built.path)
    spec = importlib.util.spec_from_file_location(built.module, built.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    x = torch.randn(1024, 517, device="cuda")
    if not torch.allclose(module.f(x), torch.relu(x) * 2):
        raise SystemExit("a pattern's result is wrong")


def measure(pattern: Pattern, builder: Watched, with_split: bool, device: bool) -> dict[str, Any]:
    """Build one pattern unseen and again."""
    builder.kept, builder.compilers = None, 0
    request = pattern.request(uuid.uuid4().hex)
    before = cpu_s()
    first = builder.build(request)
    used_s = cpu_s() - before
    if not first.path:  # a toolkit may come without cuBLAS' headers, say
        return {"error": first.log[:500]}
    compilers = builder.compilers
    started = time.perf_counter()
    again = builder.build(request)
    known_s = time.perf_counter() - started
    if not again.cached:
        raise SystemExit("a known build was built again")
    loaded = device and bool(pattern.cuda)
    if loaded:
        runs(first)
    stages = split(builder.kept) if with_split and builder.kept else {}
    return {
        "first_s": round(first.wall_s, 2),
        "cpu_s": round(used_s, 2),
        "known_s": round(known_s, 4),
        "compilations": compilers,
        "ran": loaded,
        **({"nvcc_stages_ms": {name: round(ms) for name, ms in stages.items()}} if stages else {}),
    }


def main() -> None:
    """Measure every pattern; print and write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="only patterns with this word in their name")
    parser.add_argument("--split", action="store_true", help="time nvcc's stages apart, too")
    parser.add_argument("--tier", choices=TIERS, default=TIERS[0], help="of the sandbox")
    options = parser.parse_args()
    import torch

    device = torch.cuda.is_available()
    capability = torch.cuda.get_device_capability() if device else (9, 0)
    find_nvcc()
    result: dict[str, Any] = {
        "machine": machine("cuda:0" if device else "cpu", "torch"),
        "goals": {"first_s": GOAL_S, "known_s": KNOWN_GOAL_S},
        "capability": list(capability),
    }
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        limits = Limits(build_s=600.0)
        builder = Watched(
            Path(folder) / "cache", scratch, options.tier, limits, readable_paths(), capability
        )
        empty = PATTERNS["cpp: tensor in, tensor out"].request("the binding unit")
        result["with_binding_unit_s"] = round(builder.build(empty).wall_s, 2)
        result["patterns"] = {}
        for name, pattern in PATTERNS.items():
            if options.only in name:
                result["patterns"][name] = measure(pattern, builder, options.split, device)
                print(name, json.dumps(result["patterns"][name]), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
