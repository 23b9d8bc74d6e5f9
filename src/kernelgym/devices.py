"""The devices kernels can be judged on: the CPU and NVIDIA GPUs.

Looking at a name needs nothing; looking for the device itself starts a small process, so that the
caller's own process never initialises CUDA (a process that has cannot fork others that do).
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelgym.errors import UsageError

CONTEXT_BYTES = 512 << 20
"""GPU memory that a process with a CUDA context takes, with a margin, in bytes."""

DEVICES = ("cpu", "cuda:N")
"""Names of devices; N counts from 0."""


_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One GPU as the driver describes it."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    """Compute capability, such as (9, 0)."""
    driver: tuple[int, int] = (0, 0)
    """Newest version of CUDA that its driver supports; (0, 0) if it is not known."""


def check_device(device: str) -> str:
    """Return a device's canonical name (``cuda`` is ``cuda:0``), whether it exists here or not.

    Raises:
        UsageError: If it is not a name of a device.
    """
    if device == "cuda":
        return "cuda:0"
    if device == "cpu" or (isinstance(device, str) and re.fullmatch(r"cuda:(0|[1-9]\d*)", device)):
        return device
    raise UsageError(
        f"device {device!r} cannot be judged on; known: {', '.join(DEVICES)} "
        "(another evaluator may judge elsewhere: pass it as `evaluator`)"
    )


def find_device(name: str) -> str:
    """Return a device's canonical name if it is there.

    Raises:
        UsageError: If it is not, or if that is not a name of a device.
    """
    name = check_device(name)
    if name == "cpu":
        return name
    found = cuda_devices()
    if int(name.partition(":")[2]) >= len(found):
        there = ", ".join(f"cuda:{i} ({gpu.name})" for i, gpu in enumerate(found))
        raise UsageError(f"device {name!r} does not exist here; known: cpu, {there}")
    return name


def find_devices(devices: str | Sequence[str]) -> tuple[str, ...]:
    """Return the canonical names of several GPUs of one kind, for one evaluator.

    Args:
        devices: Their names, or ``all``.

    Raises:
        UsageError: If one does not exist, is not a GPU, or is of another kind.
    """
    there = cuda_devices()
    if devices == "all":
        devices = [f"cuda:{number}" for number in range(len(there))]
    if isinstance(devices, str) or not devices or len(set(devices)) < len(devices):
        raise UsageError(
            f"devices is 'all' or a list of different GPUs such as ['cuda:0', 'cuda:1'], got "
            f"{devices!r}"
        )
    names = tuple(find_device(device) for device in devices)
    if "cpu" in names:
        raise UsageError(f"devices are GPUs, got {devices!r}; for the CPU, raise `workers`")
    kinds = {name: there[int(name.partition(":")[2])].name for name in names}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise UsageError(
            f"devices must be of one kind, or times could not be compared, got {listed}; make an "
            "evaluator for each kind"
        )
    return names


def alone(name: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the name of a GPU in a process that sees only that GPU, and the variables for that.

    Args:
        name: The device's canonical name in this process.
        environment: This process's variables.
    """
    if name == "cpu":
        return name, {}
    return "cuda:0", {_VISIBLE: physical_number(name, environment)}


def physical_number(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a GPU's number, or its UUID, as the driver counts all GPUs of the machine.

    Args:
        name: The GPU's canonical name in this process.
        environment: This process's variables.
    """
    number = name.partition(":")[2]
    if (visible := environment.get(_VISIBLE)) is not None:
        number = visible.split(",")[int(number)].strip()
    return number


def named_by_uuid(name: str, uuid: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES that names one GPU by its UUID, not by a number.

    Args:
        name: The GPU's canonical name in this process.
        uuid: The GPU's UUID as torch writes it, without ``GPU-``.
        environment: This process's variables. If CUDA_VISIBLE_DEVICES names the GPU by a UUID, that
            one is returned: `uuid` may be that of a whole GPU, of which this process sees one
            slice (MIG).
    """
    named = physical_number(name, environment)
    return f"GPU-{uuid}" if named.isdigit() else named


def cuda_devices() -> tuple[CudaDevice, ...]:
    """Return this machine's visible GPUs, in CUDA's order.

    Raises:
        UsageError: If there is no driver, or it fails.
    """
    return _ask_driver(os.environ.get(_VISIBLE))


@functools.lru_cache(maxsize=8)
def _ask_driver(visible: str | None) -> tuple[CudaDevice, ...]:
    del visible  # part of the question: the driver reads it from the environment
    asked = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _QUESTION], capture_output=True, text=True, check=False
    )
    lines = asked.stderr.strip().splitlines()
    if asked.returncode:
        why = lines[-1] if lines else f"exit status {asked.returncode}"
        raise UsageError(
            f"no CUDA device can be used here: {why}; install NVIDIA's driver and check it with "
            "nvidia-smi, or use device 'cpu'"
        )
    rows = json.loads(asked.stdout)
    if not rows:
        raise UsageError("no CUDA device is visible here (see CUDA_VISIBLE_DEVICES); known: cpu")
    return tuple(
        CudaDevice(name, size, (major, minor), divmod(driver // 10, 100))
        for name, size, major, minor, driver in rows
    )


_QUESTION = """
import ctypes, json, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"the driver's library is missing ({error})")
def ask(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code == 100 and name == "cuInit":
        return False
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        sys.exit(f"{name} says {(text.value or b'?').decode()} ({code})")
    return True
rows, number = [], ctypes.c_int()
if ask("cuInit", 0):
    ask("cuDeviceGetCount", ctypes.byref(number))
    driver = ctypes.c_int()
    ask("cuDriverGetVersion", ctypes.byref(driver))
    for index in range(number.value):
        device, size = ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(256)
        ask("cuDeviceGet", ctypes.byref(device), index)
        ask("cuDeviceGetName", name, 256, device)
        ask("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        capability = []
        for attribute in (75, 76):
            value = ctypes.c_int()
            ask("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            capability.append(value.value)
        rows.append([name.value.decode(), size.value, *capability, driver.value])
print(json.dumps(rows))
"""
