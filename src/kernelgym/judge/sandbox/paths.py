"""Returns the paths that sandboxed processes may read: of Python, compilers and the CUDA driver."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]  # kernelgym
_PROC = Path("/proc/driver/nvidia/gpus")


def readable_paths(*extra: str) -> tuple[str, ...]:
    """Return the paths that a sandboxed Python with torch needs to read.

    This package is excluded: it holds correct kernels for the Synthetic suite.
    """
    paths = [*_python_folders(), *extra]
    paths += ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/usr/share/zoneinfo"]
    paths += ["/etc/ld.so.cache", "/etc/localtime"]
    real = dict.fromkeys(os.path.realpath(path) for path in paths)
    return tuple(part for path in real for part in without(path, _PACKAGE))


def listable_paths() -> tuple[str, ...]:
    """Return the folders above this package that Python's import system lists."""
    real = [os.path.realpath(path) for path in _python_folders()]
    return tuple(str(p) for p in _PACKAGE.parents if any(p.is_relative_to(path) for path in real))


def compiler_paths() -> tuple[str, ...]:
    """Return the paths that compilers and their tools need."""
    paths = ["/usr/bin", "/bin", "/usr/include", "/usr/local/bin", "/usr/local/include"]
    paths += ["/usr/libexec", "/sbin", "/usr/sbin", "/etc/alternatives"]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def driver_paths() -> tuple[str, ...]:
    """Return the paths of the CUDA driver and toolkit, besides `/dev`."""
    with contextlib.suppress(OSError):
        # Makes no context. Once loaded, the driver's path stands in this process's memory map.
        ctypes.CDLL("libcuda.so.1")
    with open("/proc/self/maps") as file:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in file}
    folders = {
        str(Path(path).parent) for path in mapped if re.search(r"/lib(cuda|nvidia)[-.]", path)
    }
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    paths = [*sorted(folders), toolkit, "/usr/local/nvidia", "/etc/nvidia"]
    paths += [
        "/proc/driver/nvidia",
        "/proc/devices",
        "/proc/modules",
        "/sys/bus/pci",
        "/sys/module",
    ]
    paths += ["/sys/devices", "/sys/class"]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def other_gpus(uuid: str, proc: Path = _PROC, dev: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the paths of the device files of all GPUs of this machine except one, sorted.

    Empty if the driver does not tell which device file belongs to that one.

    Args:
        uuid: UUID of the GPU that is left out, as torch writes it, without ``GPU-``.
        proc: Folder in which the driver describes each GPU.
        dev: Folder of the device files.
    """
    for described in proc.glob("*/information"):
        try:
            text = described.read_text(encoding="utf-8", errors="replace")
        except OSError:  # a GPU whose driver fails must not fail the judging on another one
            continue
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if f"GPU-{uuid}" in text and minor and (own := dev / f"nvidia{minor[1]}").exists():
            return tuple(sorted(str(each) for each in dev.glob("nvidia[0-9]*") if each != own))
    return ()


def driver_libraries() -> tuple[str, ...]:
    """Return the path of the CUDA driver's library, if loaded here."""
    with open("/proc/self/maps") as file:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in file}
    return tuple(sorted(path for path in mapped if re.search(r"/libcuda\.so[.\d]*$", path)))[:1]


def _python_folders() -> list[str]:
    found = importlib.util.find_spec("torch")  # does not import torch, which would take seconds
    if found is None or found.origin is None:
        raise ImportError("PyTorch is not installed; `pip install torch`")
    return [sys.prefix, sys.base_prefix, str(Path(found.origin).parent.parent)]


def without(path: str, excluded: Path) -> list[str]:
    """Return paths that together hold all of `path` except `excluded`."""
    if not excluded.is_relative_to(path):
        return [path]
    if excluded == Path(path):
        return []
    parts = []
    for entry in os.scandir(path):
        # Skip links to a folder above the excluded one (lib64 in a venv): its parts are listed
        # under its own name.
        real = os.path.realpath(entry.path)
        if not (entry.is_symlink() and excluded.is_relative_to(real)):
            parts += without(real, excluded)
    return parts
