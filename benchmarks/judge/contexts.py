"""Measure how many CUDA contexts a host makes in a second, by the GPUs that a process can open.

Run ``python -m benchmarks.judge.contexts [--processes 1,6,24] [--out FILE]`` on a machine with
GPUs. Every process makes one context on one GPU, as a kernel's process does, and ends; the
processes are spread evenly over the GPUs. In the measurements called ``all``, a process can open
the device files of all GPUs, and `CUDA_VISIBLE_DEVICES` names the one that it uses. In those called
``one``, it can open only the device file of the GPU that it uses, as in the judge's sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from kernelgym.devices import cuda_devices

_SOURCE = Path(__file__).with_suffix(".c")


def measure(program: Path, gpus: int, processes: int, reach: str, seconds: float) -> dict[str, Any]:
    """Return the contexts made in a second, and the mean milliseconds of the steps of making one.

    Args:
        program: Path of the compiled `contexts.c`.
        gpus: Number of GPUs that are used.
        processes: Number of processes that run at any time.
        reach: ``all`` or ``one``: the GPUs whose device files a process can open.
        seconds: Seconds for which new processes are started.

    Raises:
        RuntimeError: If a process sees more than one GPU or none.
    """
    rows: list[tuple[float, ...]] = []
    began = time.monotonic()

    def repeat(number: int) -> None:
        variables = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        if reach == "all":
            variables["CUDA_VISIBLE_DEVICES"] = str(number)
        else:
            variables.pop("CUDA_VISIBLE_DEVICES", None)
        asked = [str(program), "-1" if reach == "all" else str(number)]
        while time.monotonic() - began < seconds:
            started = time.monotonic()
            said = subprocess.run(asked, env=variables, capture_output=True, text=True, check=True)
            _, seen, *steps = map(float, said.stdout.split())
            if seen != 1:
                raise RuntimeError(
                    f"a process with reach {reach!r} sees {seen:g} GPUs, and must see 1"
                )
            rows.append((*steps, 1e3 * (time.monotonic() - started)))

    threads = [threading.Thread(target=repeat, args=(n % gpus,)) for n in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    per_s = len(rows) / (time.monotonic() - began)
    names = ("init_ms", "context_ms", "release_ms", "process_ms")
    means = {
        name: round(statistics.fmean(each), 1)
        for name, each in zip(names, zip(*rows, strict=True), strict=True)
    }
    about = {"gpus": gpus, "processes": processes, "reach": reach}
    return {**about, "per_s": round(per_s, 1), **means}


def main() -> None:
    """Measure each number of processes with both reaches, and print a line for each measurement."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument(
        "--processes", default="1,6,24", help="counts of processes; above 6, spread over all GPUs"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each measurement")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    there = len(cuda_devices())
    data: dict[str, Any] = {"machine": {**machine(), **gpu("cuda:0")}, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "contexts")
        compiled = ["gcc", "-O1", "-rdynamic", "-o", str(program), str(_SOURCE), "-ldl"]
        subprocess.run(compiled, check=True)
        for processes in map(int, options.processes.split(",")):
            gpus = 1 if processes <= 6 else there
            for reach in ("all", "one"):
                row = measure(program, gpus, processes, reach, options.seconds)
                data["rows"].append(row)
                print(json.dumps(row), flush=True)
    if options.out:
        options.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
