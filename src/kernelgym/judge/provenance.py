"""Provenance: the device and tools that a verdict depends on.

The verdict's other inputs are the problem, the kernel and the ruleset.

Contract:

- two machines with the same provenance are assumed to give the same verdicts;
- a GPU counts by its kind, not by its index;
- this module imports no torch and uses no GPU: it reads versions from the installed packages, and
  a small process asks the driver.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

from kernelgym.devices import check_device, cuda_devices, find_device
from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling.cpp_compiler import find_compiler, this_cpu
from kernelgym.judge.compiling.cuda_toolkit import find_nvcc
from kernelgym.machine import installed_version

_PACKAGES = ("kernelgym", "torch", "triton", "numpy")
_CODE = ("*.py", "*.h", "*.cpp", "*.cu")
_DECIDING_ROOMS = ("judge", "languages", "answers", "evaluators")
"""Rooms whose code decides a verdict, in addition to the package's top-level files."""
_PACKAGE = Path(__file__).parents[1]  # kernelgym


def provenance(device: str) -> tuple[str, ...]:
    """Return the provenance of verdicts on one device of this machine.

    Args:
        device: ``cpu`` or a name like ``cuda:0``.

    Returns:
        One line per fact. The text of a line may change between releases, the number of lines not.

    Raises:
        UsageError: If this machine has no such device.
    """
    on_cpu = check_device(device) == "cpu"
    tools = [_tool(find_compiler)] if on_cpu else [_tool(find_compiler), _tool(find_nvcc)]
    return (
        f"device {this_cpu() if on_cpu else _gpu(device)}",
        f"python {platform.python_version()} {platform.machine()}",
        *(f"{package} {installed_version(package, 'none')}" for package in _PACKAGES),
        f"judge {code_digest(_PACKAGE)}",
        *(f"compiler {text}" for text in tools),
    )


def device_kind(device: str) -> str:
    """Return the model of a device of this machine: ``cpu``, or a GPU's name."""
    name = find_device(device)
    return name if name == "cpu" else cuda_devices()[int(name.partition(":")[2])].name


def _gpu(device: str) -> str:
    name = find_device(device)
    gpu = cuda_devices()[int(name.partition(":")[2])]
    return f"{gpu.name} sm_{gpu.capability[0]}{gpu.capability[1]}"


@functools.cache
def code_digest(root: Path) -> str:
    """Return a digest of the source files that decide a verdict.

    The package's version is not enough: a checkout changes between releases.

    Args:
        root: The package's folder.
    """
    rooms = [root / room for room in _DECIDING_ROOMS]
    files = {path for room in rooms for pattern in _CODE for path in room.rglob(pattern)}
    files |= set(root.glob("*.py"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _tool(find: Callable[[], str]) -> str:
    try:
        path = find()
    except UnsupportedLanguage:
        return "none"
    return _describe(path)


@functools.lru_cache(maxsize=8)
def _describe(path: str) -> str:
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return hashlib.sha256(f"{path}\0{answer.stdout}".encode()).hexdigest()[:32]
