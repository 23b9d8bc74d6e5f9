"""What it costs to give, share, open, close and take back device memory, by several processes.

Run ``python benchmarks/shared_memory.py [--mib 64,1024,7168] [--pairs 1,4] [--devices 0]
[--out FILE]`` on a machine with a GPU. A pair is two processes on one device: one allocates as the
judge's trusted side does, the other opens that as a candidate does. Pairs are dealt out over the
devices, each process sees its own only, and all do each step at once: times are from the word until
the last has done it, per pair. That is done twice and the second counts.
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

CHILD = "--one"
STEPS = ("allocate", "share", "open", "close", "free")
_OWNERS = ("allocate", "share", "free")


def one() -> None:
    """Be one of the processes: do what each line says, and answer with a line."""
    from kernelgym.judge import device_memory

    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        raise SystemExit("no context can be made on the device")
    driver.cuCtxSetCurrent(context)
    print("ready", flush=True)
    address = 0
    for line in sys.stdin:
        step, _, argument = line.strip().partition(" ")
        match step:
            case "allocate":
                address = device_memory.allocate(int(argument) << 20)
            case "open":
                address = device_memory.open_shared(argument)
            case "close":
                device_memory.close_shared(address)
            case "free":
                device_memory.free(address)
        print(device_memory.share(address) if step == "share" else step, flush=True)


class Process:
    """One of the processes, on one device."""

    def __init__(self, device: str) -> None:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device}
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # as a candidate's
        command = [sys.executable, __file__, CHILD]
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)

    def say(self, line: str) -> None:
        """Have it do something."""
        stream = _stream(self._process.stdin)
        stream.write(f"{line}\n")
        stream.flush()

    def hear(self) -> str:
        """Return its answer."""
        if not (line := _stream(self._process.stdout).readline()):
            raise SystemExit("a process ended early; is there a CUDA driver, and memory enough?")
        return line.strip()

    def end(self) -> None:
        """Have it end."""
        self._process.communicate()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def measure(pairs: list[tuple[Process, Process]], mib: int) -> dict[str, float]:
    """Return what each step takes for `mib` MiB, in milliseconds for each pair."""
    found, handles = {}, [""] * len(pairs)
    for step in STEPS:
        who = [owner if step in _OWNERS else borrower for owner, borrower in pairs]
        started = time.perf_counter()
        for process, handle in zip(who, handles, strict=True):
            process.say({"allocate": f"{step} {mib}", "open": f"{step} {handle}"}.get(step, step))
        answers = [process.hear() for process in who]
        found[f"{step}_ms"] = round((time.perf_counter() - started) * 1e3 / len(pairs), 3)
        if step == "share":
            handles = answers
    return found


def main() -> None:
    """Measure all sizes and numbers of pairs, and print them."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--mib", default="64,1024,7168", help="sizes of the memory, MiB")
    parser.add_argument("--pairs", default="1,4", help="how many at once")
    parser.add_argument("--devices", default="0", help="numbers of the GPUs they are dealt out to")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    devices, rows = options.devices.split(","), []
    for count in map(int, options.pairs.split(",")):
        dealt = [devices[number % len(devices)] for number in range(count)]
        pairs = [(Process(device), Process(device)) for device in dealt]
        for process in (each for pair in pairs for each in pair):
            process.hear()
        for mib in map(int, options.mib.split(",")):
            measure(pairs, mib)
            rows.append({"pairs": count, "mib": mib, **measure(pairs, mib)})
            print(rows[-1], flush=True)
        for process in (each for pair in pairs for each in pair):
            process.end()
    if options.out:
        about = {"devices": devices, "per_pair": rows}
        options.out.write_text(
            json.dumps({"machine": {**machine(), **gpu("cuda:0")}, **about}, indent=1) + "\n"
        )


if __name__ == "__main__":
    one() if sys.argv[1:2] == [CHILD] else main()
