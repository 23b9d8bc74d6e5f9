"""The memory budget: how much memory judging takes, and how much a caller allows.

Contract: arithmetic and reading of the system's files. Environments, evaluators, commands and
trainers take their budget from `memory_budget`, and all of them compare it with `judging_bytes`.

It does not cover:

- what a problem's inputs and outputs are: `kernelgym.suites.known_memory` knows that of suites;
- how workers of one GPU share it: `kernelgym.judge.device.memory_shares`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kernelgym import devices
from kernelgym.errors import UsageError

SPARE_BYTES = 1 << 30
"""Memory that a kernel and the judge need besides inputs and outputs."""

# Copies that exist at once, and how many more for each kernel. Inputs: as drawn, in the reference's
# slot, and in each kernel's slot. Outputs: the reference's, a copy of it, and one that a comparison
# makes; of each kernel the three newest, which torch caches, and a copy. On an H200, judging
# KernelBench L1/36, with 7 GiB of inputs and of outputs, took 72 GiB besides CUDA contexts.
_INPUTS, _INPUTS_EACH = 2, 1
_OUTPUTS, _OUTPUTS_EACH = 3, 4
_SHARE = 2  # half is left to the fp64 reference, to the comparison and to other programs
_UNITS = {
    **{"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40},
}
_SIZE = re.compile(r"(\d+(?:\.\d*)?(?:e\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)
_PROCESS_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def judging_bytes(inputs: int, outputs: int = 0, parameters: int = 0) -> int:
    """Return the bytes that judging one kernel of a problem takes.

    The worker and the candidate each hold one call's inputs and outputs.

    Args:
        inputs: Bytes of one call's inputs.
        outputs: Bytes of its outputs.
        parameters: Bytes of the reference's weights and buffers.
    """
    return 2 * inputs + 2 * outputs + parameters + SPARE_BYTES


def kernel_bytes(inputs: int, outputs: int, kernels: int = 1) -> int:
    """Return the memory to reserve for kernels that are judged together, and their reference.

    Args:
        inputs: Bytes of one call's inputs.
        outputs: Bytes of its outputs.
        kernels: Number of kernels that are judged together.
    """
    of_inputs, of_outputs = _INPUTS + kernels * _INPUTS_EACH, _OUTPUTS + kernels * _OUTPUTS_EACH
    return of_inputs * inputs + of_outputs * outputs + kernels * SPARE_BYTES


def memory_budget(given: float | None, device: str) -> int:
    """Return the most memory in bytes that judging one kernel may take.

    Args:
        given: Budget that the caller asks for; None takes half of what the device has.
        device: Device on which kernels run. It has to exist only if `given` is None.

    Raises:
        UsageError: If `given` is not a number of bytes, or the device does not exist.
    """
    if given is None:
        return device_bytes(device) // _SHARE
    sound = isinstance(given, int | float) and not isinstance(given, bool)
    if not sound or not 1 <= given < float("inf") or given != int(given):
        raise UsageError(
            f"memory_bytes is a whole number of bytes above 0, such as 12_000_000_000, got "
            f"{given!r}; leave it out to take half of the device's memory"
        )
    return int(given)


def device_bytes(device: str) -> int:
    """Return a device's memory in bytes.

    That of the CPU is the machine's, or the limit of this process's control group if that is less.

    Raises:
        UsageError: If the device does not exist.
    """
    device = devices.find_device(device)
    if device != "cpu":
        return devices.cuda_devices()[int(device.partition(":")[2])].memory_bytes
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = control_group_bytes()
    return machine if limit is None else min(machine, limit)


def control_group_bytes(
    process_groups: Path = _PROCESS_GROUPS, groups: Path = _GROUPS
) -> int | None:
    """Return the least limit of this process's control groups, or None.

    Reads control groups of version 1 and 2, and those above the process's own, whose limits hold
    too. In a container a path may lead nowhere, and the root is what the container is given.

    Args:
        process_groups: The file that lists the process's control groups.
        groups: The folder where control groups are mounted.
    """
    try:
        lines = process_groups.read_text().splitlines()
    except OSError:
        return None
    return min((limit for line in lines for limit in _limits(line, groups)), default=None)


def _limits(line: str, groups: Path) -> Iterator[int]:
    """Yield the memory limits along one line of a process's list of control groups."""
    number, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if number == "0" and not controllers:
        mounts, name = (groups, groups / "unified"), "memory.max"
    elif "memory" in controllers.split(","):
        mounts, name = (groups / "memory", groups / controllers), "memory.limit_in_bytes"
    else:
        return
    own = PurePosixPath(path.lstrip("/"))
    for mount in mounts:
        for folder in (own, *own.parents):
            try:
                text = (mount / folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # or "max"
                yield int(text)


def parse_bytes(text: str) -> int | None:
    """Return a size of memory such as ``12GB`` in bytes; None if empty.

    Raises:
        UsageError: If it is not a size above 0.
    """
    if not text.strip():
        return None
    match = _SIZE.fullmatch(text.strip())
    unit = match[2].upper() if match else ""
    unit = unit if unit in _UNITS else f"{unit}B"  # 12G is 12GB
    size = float(match[1]) * _UNITS[unit] if match and unit in _UNITS else 0.0
    if not 1 <= size < float("inf"):
        raise UsageError(
            f"memory is a size above 0 such as 12GB, 8GiB or 6e9, got {text!r}; leave it out to "
            "take half of the device's memory"
        )
    return int(size)


def in_gigabytes(size: int) -> str:
    """Return a number of bytes as a text in gigabytes, such as ``26.8 GB``."""
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"
