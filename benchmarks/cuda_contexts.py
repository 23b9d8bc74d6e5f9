"""What it costs to start the driver and to make and end CUDA contexts, by several processes.

Run ``python benchmarks/cuda_contexts.py [--processes 1,4,8] [--devices 0] [--out FILE]`` on a
machine with a GPU. Each process waits for all others, initialises the driver, waits, makes its
context, waits again and exits; times are from the word until the last has done it, per process.
That is done twice and the second counts, for the driver's usual queues and for fewer of them. With
several devices the processes are dealt out over them, each sees its own only, and ``--hide`` (root)
takes the others' files away from it, too. ``--held`` has one more process for each device hold a
context meanwhile, as the judge's workers do: who comes first to a device that nobody uses pays for
waking it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from machine import gpu, machine

_ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
VARIANTS: tuple[dict[str, str], ...] = (
    {},
    _ONE_QUEUE,
    {**_ONE_QUEUE, "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"},
    {**_ONE_QUEUE, "CUDA_SCALE_LAUNCH_QUEUES": "0.25x"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "2"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "4"},
)
CHILD = "--one"
_STEPS = ("init_s", "make_s", "end_s")


def one(shown: str) -> None:
    """Be one of the processes."""
    if shown:
        _show_only(shown)
    driver = ctypes.CDLL("libcuda.so.1")
    _tell_and_wait()
    _check(driver.cuInit(0))
    _tell_and_wait()
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0))
    _tell_and_wait()
    os._exit(0)


def _show_only(number: str) -> None:
    """Take the files of all GPUs but one away from this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    nodes = {
        path.name: path.stat() for path in Path("/dev").glob("nvidia*") if path.is_char_device()
    }
    private, new_mounts = 0x44000, 0x20000
    if libc.unshare(new_mounts) or libc.mount(b"none", b"/", None, private, None):
        raise SystemExit("--hide needs root")
    if libc.mount(b"tmpfs", b"/dev", b"tmpfs", 0, None):
        raise SystemExit("--hide needs root")
    for name, found in nodes.items():
        if not name.removeprefix("nvidia").isdigit() or name == f"nvidia{number}":
            os.mknod(f"/dev/{name}", 0o666 | stat.S_IFCHR, found.st_rdev)


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"the CUDA driver answers {code}")


def _tell_and_wait() -> None:
    print(flush=True)
    sys.stdin.readline()


def start(device: str, variables: dict[str, str], hide: bool) -> subprocess.Popen[str]:
    """Start one of the processes."""
    environment = {**os.environ, **variables, "CUDA_VISIBLE_DEVICES": "0" if hide else device}
    command = [sys.executable, __file__, CHILD, device if hide else ""]
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)


@contextlib.contextmanager
def held(devices: list[str]) -> Iterator[None]:
    """Have a process for each device hold a context there."""
    processes = [start(device, {}, hide=False) for device in devices]
    outputs = [_stream(process.stdout) for process in processes]
    _hear(outputs)
    for _ in _STEPS[:-1]:
        _say([_stream(process.stdin) for process in processes])
        _hear(outputs)
    try:
        yield
    finally:
        for process in processes:
            process.communicate("\n")


def measure(
    count: int, variables: dict[str, str], devices: list[str], hide: bool
) -> dict[str, float]:
    """Return seconds for each of `count` processes: to initialise, make a context, end with it."""
    dealt = [devices[number % len(devices)] for number in range(count)]
    processes = [start(device, variables, hide) for device in dealt]
    outputs = [_stream(process.stdout) for process in processes]
    inputs = [_stream(process.stdin) for process in processes]
    found = {}
    _hear(outputs)
    for step in _STEPS:
        started = time.perf_counter()
        _say(inputs)
        if step != _STEPS[-1]:
            _hear(outputs)
        elif any([process.wait() for process in processes]):
            raise SystemExit("a process could not make its context")
        found[step] = round((time.perf_counter() - started) / count, 4)
    return found


def _say(streams: list[IO[str]]) -> None:
    for stream in streams:
        stream.write("\n")
        stream.flush()


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
    parser.add_argument(
        "--devices", default="0", help="numbers of the GPUs they are dealt out over"
    )
    parser.add_argument("--hide", action="store_true", help="the files of all GPUs but one's own")
    parser.add_argument("--held", action="store_true", help="others hold the GPUs meanwhile")
    parser.add_argument("--variants", type=int, default=len(VARIANTS), help="how many of them")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    devices, rows = options.devices.split(","), []
    with held(devices) if options.held else contextlib.nullcontext():
        for variables in VARIANTS[: options.variants]:
            for count in map(int, options.processes.split(",")):
                run = (count, variables, devices, options.hide)
                measure(*run)
                rows.append({"variables": variables, "processes": count, **measure(*run)})
                print(rows[-1], flush=True)
    if options.out:
        about = {"devices": devices, "hide": options.hide, "held": options.held}
        result = {"machine": {**machine(), **gpu("cuda:0")}, **about, "per_process": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    one(sys.argv[2]) if sys.argv[1:2] == [CHILD] else main()
