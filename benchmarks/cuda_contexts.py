"""What it costs to make and end CUDA contexts, alone and by several processes at once.

Run ``python benchmarks/cuda_contexts.py [--processes 1,4,8] [--out FILE]`` on a machine with a GPU.
Each process initialises the driver, waits for all others, makes its context, waits again and exits;
the times are from the word until the last has done it. That is done twice and the second counts,
with the driver's usual queues and with ``CUDA_DEVICE_MAX_CONNECTIONS=1``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from machine import gpu, machine

VARIANTS: tuple[dict[str, str], ...] = ({}, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
CHILD = "--one"


def one() -> None:
    """Be one of the processes."""
    driver = ctypes.CDLL("libcuda.so.1")
    _check(driver.cuInit(0))
    _tell_and_wait()
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0))
    _tell_and_wait()
    os._exit(0)


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"the CUDA driver answers {code}")


def _tell_and_wait() -> None:
    print(flush=True)
    sys.stdin.readline()


def measure(count: int, variables: dict[str, str]) -> dict[str, float]:
    """Return seconds for each of `count` processes, to make a context and to end with it."""
    command = [sys.executable, __file__, CHILD]
    environment = {**os.environ, **variables}
    processes = [
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)
        for _ in range(count)
    ]
    outputs = [_stream(process.stdout) for process in processes]
    inputs = [_stream(process.stdin) for process in processes]

    def go() -> float:
        for stream in inputs:
            stream.write("\n")
            stream.flush()
        return time.perf_counter()

    _hear(outputs)
    started = go()
    _hear(outputs)
    made_s, started = time.perf_counter() - started, go()
    if any([process.wait() for process in processes]):
        raise SystemExit("a process could not make its context")
    ended_s = time.perf_counter() - started
    return {"make_s": round(made_s / count, 4), "end_s": round(ended_s / count, 4)}


def _hear(streams: list[IO[str]]) -> None:
    if not all([stream.readline() for stream in streams]):
        raise SystemExit("a process ended before its context was made; is there a CUDA driver?")


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main() -> None:
    """Measure all variants and print them."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--processes", default="1,4,8", help="how many at once")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    rows = []
    for variables in VARIANTS:
        for count in map(int, options.processes.split(",")):
            measure(count, variables)
            rows.append({"variables": variables, "processes": count, **measure(count, variables)})
            print(rows[-1], flush=True)
    if options.out:
        result = {"machine": {**machine(), **gpu("cuda:0")}, "per_process": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    one() if sys.argv[1:] == [CHILD] else main()
