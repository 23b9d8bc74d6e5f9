"""What it costs to give, share, open, close and take back device memory, by several processes.

Run ``python benchmarks/shared_memory.py [--mib 64,1024,7168] [--pairs 1,4] [--devices 0]
[--ways ipc,virtual] [--out FILE]`` on a machine with a GPU. A pair is two processes on one device:
one allocates, the other opens that. Pairs are dealt out over the devices, each process sees its own
only, and all do each step at once: times are from the word until the last has done it, per pair.
That is done twice and the second counts.

`ipc` is how the judge does it: an allocation, and a handle that opens the whole of it. `virtual` is
CUDA's virtual memory management: physical memory, passed on as a file descriptor, and mapped by
both sides at an address aligned to its pages. `open_at_mib` tells the largest power of two that the
address of what was opened is a multiple of: pages larger than that cannot be used for it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from machine import gpu, machine

from kernelgym.judge.untrusted import cuda_ipc

CHILD = "--one"
STEPS = ("allocate", "share", "open", "close", "free")
_OWNERS = ("allocate", "share", "free")
_ALIGNMENT = 2 << 20  # the largest page of an H100 or H200


class Ipc:
    """Memory shared as the judge shares it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.address = 0

    def allocate(self, size: int) -> None:
        """Allocate."""
        self.address = cuda_ipc.allocate(size)

    def share(self, _: int) -> None:
        """Send what the other side needs."""
        self._channel.sendall(cuda_ipc.share(self.address).encode())

    def open(self, _: int) -> None:
        """Open what the other side has sent."""
        self.address = cuda_ipc.open_shared(self._channel.recv(4096).decode())

    def close(self, _: int) -> None:
        """Let go of it."""
        cuda_ipc.close_shared(self.address)

    def free(self, _: int) -> None:
        """Give it back."""
        cuda_ipc.free(self.address)


class _Place(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("place", _Place),
        ("unused", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("place", _Place), ("flags", ctypes.c_int)]


_PINNED, _DESCRIPTOR, _ON_DEVICE, _READ_AND_WRITE = 1, 1, 1, 3
_u64, _size, _pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
_ARGUMENTS: dict[str, list[Any]] = {
    "cuMemCreate": [_pointer, _size, _pointer, _u64],
    "cuMemExportToShareableHandle": [_pointer, _u64, ctypes.c_int, _u64],
    "cuMemImportFromShareableHandle": [_pointer, _pointer, ctypes.c_int],
    "cuMemAddressReserve": [_pointer, _size, _size, _u64, _u64],
    "cuMemMap": [_u64, _size, _size, _u64, _u64],
    "cuMemSetAccess": [_u64, _size, _pointer, _size],
    "cuMemUnmap": [_u64, _size],
    "cuMemAddressFree": [_u64, _size],
    "cuMemRelease": [_u64],
}


class Virtual:
    """Memory shared by CUDA's virtual memory management."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._driver = ctypes.CDLL("libcuda.so.1")
        for name, arguments in _ARGUMENTS.items():
            getattr(self._driver, name).argtypes = arguments
        self._memory = _u64()
        self.address = 0

    def _ask(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._driver, name)(*arguments):
            raise SystemExit(f"{name} answers {code}")

    def allocate(self, size: int) -> None:
        """Allocate and map."""
        wanted = _Properties(_PINNED, _DESCRIPTOR, _Place(_ON_DEVICE, 0))
        self._ask("cuMemCreate", ctypes.byref(self._memory), size, ctypes.byref(wanted), 0)
        self._map(size)

    def share(self, _: int) -> None:
        """Send what the other side needs."""
        fd = ctypes.c_int()
        self._ask("cuMemExportToShareableHandle", ctypes.byref(fd), self._memory, _DESCRIPTOR, 0)
        socket.send_fds(self._channel, [b"."], [fd.value])
        os.close(fd.value)

    def open(self, size: int) -> None:
        """Open what the other side has sent, and map it."""
        _, (fd,), _, _ = socket.recv_fds(self._channel, 1, 1)
        self._ask("cuMemImportFromShareableHandle", ctypes.byref(self._memory), fd, _DESCRIPTOR)
        os.close(fd)
        self._map(size)

    def _map(self, size: int) -> None:
        address, access = _u64(), _Access(_Place(_ON_DEVICE, 0), _READ_AND_WRITE)
        self._ask("cuMemAddressReserve", ctypes.byref(address), size, _ALIGNMENT, 0, 0)
        self._ask("cuMemMap", address, size, 0, self._memory, 0)
        self._ask("cuMemSetAccess", address, size, ctypes.byref(access), 1)
        self.address = address.value

    def close(self, size: int) -> None:
        """Unmap, and let go of it."""
        self._ask("cuMemUnmap", self.address, size)
        self._ask("cuMemAddressFree", self.address, size)
        self._ask("cuMemRelease", self._memory)

    free = close


WAYS: dict[str, Any] = {"ipc": Ipc, "virtual": Virtual}


def one(way: str, channel: socket.socket) -> None:
    """Be one of the processes: do what each line says, and answer with a line."""
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        raise SystemExit("no context can be made on the device")
    driver.cuCtxSetCurrent(context)
    print("ready", flush=True)
    memory = WAYS[way](channel)
    for line in sys.stdin:
        step, mib = line.split()
        getattr(memory, step)(int(mib) << 20)
        print(memory.address, flush=True)


class Process:
    """One of the processes, on one device."""

    def __init__(self, device: str, way: str, channel: socket.socket) -> None:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device}
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # as a candidate's
        command = [sys.executable, __file__, CHILD, way, str(channel.fileno())]
        self._process = subprocess.Popen(
            command, stdin=-1, stdout=-1, text=True, env=environment, pass_fds=[channel.fileno()]
        )
        channel.close()

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
    found: dict[str, float] = {}
    for step in STEPS:
        who = [owner if step in _OWNERS else borrower for owner, borrower in pairs]
        started = time.perf_counter()
        for process in who:
            process.say(f"{step} {mib}")
        addresses = [int(process.hear()) for process in who]
        found[f"{step}_ms"] = round((time.perf_counter() - started) * 1e3 / len(pairs), 3)
        if step == "open":
            found["open_at_mib"] = min(address & -address for address in addresses) / (1 << 20)
    return found


def start(devices: list[str], way: str) -> list[tuple[Process, Process]]:
    """Return a pair of processes for each of these devices, with their contexts made."""
    pairs = []
    for device in devices:
        one_end, other_end = socket.socketpair()
        pairs.append((Process(device, way, one_end), Process(device, way, other_end)))
    for process in (each for pair in pairs for each in pair):
        process.hear()
    return pairs


def main() -> None:
    """Measure all sizes and numbers of pairs, and print them."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--mib", default="64,1024,7168", help="sizes of the memory, MiB")
    parser.add_argument("--pairs", default="1,4", help="how many at once")
    parser.add_argument("--devices", default="0", help="numbers of the GPUs they are dealt out to")
    parser.add_argument("--ways", default=",".join(WAYS), help="how it is shared")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    if any(int(mib) % 2 for mib in options.mib.split(",")):
        raise SystemExit("--mib: pages have 2 MiB, so sizes must be even")
    devices, rows = options.devices.split(","), []
    for way in options.ways.split(","):
        for count in map(int, options.pairs.split(",")):
            pairs = start([devices[number % len(devices)] for number in range(count)], way)
            for mib in map(int, options.mib.split(",")):
                measure(pairs, mib)
                rows.append({"way": way, "pairs": count, "mib": mib, **measure(pairs, mib)})
                print(rows[-1], flush=True)
            for process in (each for pair in pairs for each in pair):
                process.end()
    if options.out:
        about = {"devices": devices, "per_pair": rows}
        options.out.write_text(
            json.dumps({"machine": {**machine(), **gpu("cuda:0")}, **about}, indent=1) + "\n"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        one(sys.argv[2], socket.socket(fileno=int(sys.argv[3])))
    else:
        main()
