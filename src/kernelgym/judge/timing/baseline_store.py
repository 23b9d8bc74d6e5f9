"""Compiled baselines on disk, shared by all workers of this machine."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from kernelgym.rulesets import Ruleset
from kernelgym.types import Problem

__all__ = ["Kept", "device_name"]

_FORMAT = "1"  # of what is kept: raise it when `torch_compile.py` changes what it compiles with


class Kept:
    """Compiled baselines in a folder that all workers share.

    Args:
        folder: The folder.
        ruleset: Of which the precision and the use of TF32 count.
        device: What a compiler may know of the device.
    """

    def __init__(self, folder: Path, ruleset: Ruleset, device: str) -> None:
        self._folder = folder
        self._parts = [_FORMAT, ruleset.precision, ruleset.tf32, device]
        self._parts += [torch.__version__, _triton_version(), platform.python_version()]

    def path(self, problem: Problem) -> Path:
        """Where a problem's compiled baseline is kept."""
        text = "\0".join([problem.digest, *self._parts])
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.tar"

    def find(self, problem: Problem) -> bytes | None:
        """Return what was kept for a problem, or None."""
        try:
            return self.path(problem).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, problem: Problem, packed: bytes) -> None:
        """Keep a problem's compiled baseline in place of any other."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fd, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(fd, "wb") as file:
            file.write(packed)
        os.replace(path, self.path(problem))


def device_name(device: torch.device) -> str:
    """Return what a compiler may know of a device: its model, and the CPU's number of threads."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return ""
