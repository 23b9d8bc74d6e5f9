"""Store compiled baselines on disk, for all workers of this machine.

Contract: a file's name is a hash of the problem and of everything else that decides what the
compiler makes of it, so that a change of any of these finds no file.

Not covered: what the files hold (`kernelgym.judge.session.compiled_cache`).
"""

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

_FORMAT = "1"  # raise it when `torch_compile.py` changes its options: old files would be used


class BaselineStore:
    """Compiled baselines in a folder that all workers share.

    Args:
        folder: The folder.
        ruleset: The rules; only their precision and their use of TF32 are part of the key.
        device: Name of the device, from `device_name`.
    """

    def __init__(self, folder: Path, ruleset: Ruleset, device: str) -> None:
        self._folder = folder
        self._parts = [_FORMAT, ruleset.precision, ruleset.tf32, device]
        self._parts += [torch.__version__, _triton_version(), platform.python_version()]

    def path(self, problem: Problem) -> Path:
        """Return the path of a problem's compiled baseline."""
        return self._path(problem.digest)

    def has(self, digest: str) -> bool:
        """Return True if a problem's compiled baseline is stored, by its digest."""
        return self._path(digest).is_file()

    def _path(self, digest: str) -> Path:
        text = "\0".join([digest, *self._parts])
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.tar"

    def find(self, problem: Problem) -> bytes | None:
        """Return a problem's compiled baseline, or None if none is stored."""
        try:
            return self.path(problem).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, problem: Problem, packed: bytes) -> None:
        """Store a problem's compiled baseline in place of any earlier one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fd, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(fd, "wb") as file:
            file.write(packed)
        os.replace(path, self.path(problem))


def device_name(device: torch.device) -> str:
    """Return a device's model, with the number of threads on the CPU."""
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
