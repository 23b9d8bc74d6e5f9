"""What Triton compiled ahead for a kernel: taken from one process's cache, handed to another.

A judged process may not start programs, and Triton starts `ptxas` and a C compiler at a kernel's
first launch. So a process that is thrown away launches everything once, and its cache folder is
packed and given to those that follow. The files are of the kernel's own making and no more
trusted than its source; they are stored by content of the source, for that source alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

from kernelgym.types import Kernel, Problem

__all__ = ["CompiledAhead", "as_file", "pack", "pack_common", "relocate"]

_MAX_BYTES = 256 << 20
_MAX_FILES = 4096
_PLACE = "/kernelgym-scratch-folder"
_COMMON = ("cuda_utils", "__triton_launcher")


class CompiledAhead:
    """What was compiled ahead so far, in a folder that all workers share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, problem: Problem, kernel: Kernel, precision: str) -> bytes | None:
        """Return what was kept for a kernel on a problem, or None."""
        try:
            return self._path(problem, kernel, precision).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, problem: Problem, kernel: Kernel, precision: str, scratch: Path) -> bytes:
        """Keep and return what a kernel's process left in its scratch folder's Triton cache.

        Raises:
            ValueError: If it is too much.
        """
        packed = pack(scratch / "triton_cache_dir")
        self._folder.mkdir(parents=True, exist_ok=True)
        fd, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(fd, "wb") as file:
            file.write(packed)
        os.replace(path, self._path(problem, kernel, precision))
        return packed

    def _path(self, problem: Problem, kernel: Kernel, precision: str) -> Path:
        versions = [torch.__version__, version("triton"), torch.cuda.get_device_name()]
        parts = [problem.digest, kernel.source, precision, *versions]
        text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
        return self._folder / f"{hashlib.sha256(text).hexdigest()[:32]}.tar"


def pack_common(folder: Path) -> bytes:
    """Return what Triton builds for any kernel whatever, from a cache of our own, as a tar file.

    It builds that with a C compiler, which takes half a second.

    Args:
        folder: ``TRITON_CACHE_DIR`` of a process that ran no code but ours.
    """
    return pack(folder, _COMMON)


def pack(folder: Path, beginnings: tuple[str, ...] = ("",)) -> bytes:
    """Return the regular files under a cache folder as a tar file; links are left out.

    Args:
        folder: ``TRITON_CACHE_DIR`` of a process that has ended.
        beginnings: Of the names of the files that are wanted.

    Raises:
        ValueError: If there is too much of it.
    """
    scratch = str(folder.parent).encode()
    buffer, total = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        wanted = [path for path in _regular_files(folder) if path.name.startswith(beginnings)]
        for number, path in enumerate(sorted(wanted)):
            total += path.stat(follow_symlinks=False).st_size
            if total > _MAX_BYTES or number >= _MAX_FILES:
                raise ValueError(f"more than {_MAX_BYTES} bytes or {_MAX_FILES} files")
            data = path.read_bytes()
            if path.name.startswith("__grp__"):
                data = data.replace(scratch, _PLACE.encode())  # lists files by absolute path
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def relocate(packed: bytes, scratch: str) -> bytes:
    """Return the tar file with the paths of a process whose scratch folder is `scratch`."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as old,
        tarfile.open(fileobj=buffer, mode="w") as new,
    ):
        for entry in old:
            file = old.extractfile(entry)
            assert file is not None  # only regular files were packed
            data = file.read()
            if Path(entry.name).name.startswith("__grp__"):
                data = data.replace(_PLACE.encode(), scratch.encode())
            entry.size = len(data)
            new.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def as_file(data: bytes) -> int:
    """Return a descriptor of a memory file with this content; the caller closes it."""
    fd = os.memfd_create("compiled", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _regular_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    if folder.is_symlink():  # elsewhere, our own files lie
        return found
    for root, _, names in os.walk(folder):  # does not follow links below it
        for name in names:
            path = Path(root, name)
            if stat.S_ISREG(path.stat(follow_symlinks=False).st_mode):
                found.append(path)
    return found
