"""Packs a reference's compiled files in one process for use in another.

Contract: a process that is timed must not compile, so an earlier process compiles for it. The cache
folder of that process is packed into a tar file, which later processes receive with their own
paths in it.

Not covered: storing the tar file (`kernelgym.judge.timing.baseline_store`).
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

_MAX_BYTES = 256 << 20
_MAX_FILES = 4096
_PLACE = "/kernelgym-scratch-folder"


def pack(folder: Path) -> bytes:
    """Return the regular files under a cache folder, as a tar file.

    Links are left out.

    Args:
        folder: ``TRITON_CACHE_DIR`` of a process that has ended.

    Raises:
        ValueError: If it holds more than 256 MiB or 4096 files.
    """
    scratch = str(folder.parent).encode()
    buffer, total = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number, path in enumerate(sorted(_regular_files(folder))):
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
    """Return the tar file with its paths moved to the folder `scratch`."""
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
    """Return a memory file with `data`; the caller closes the descriptor."""
    fd = os.memfd_create("compiled", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _regular_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    if folder.is_symlink():  # a link set by the candidate could point at the judge's own files
        return found
    for root, _, names in os.walk(folder):  # follows no links below the folder
        for name in names:
            path = Path(root, name)
            if stat.S_ISREG(path.stat(follow_symlinks=False).st_mode):
                found.append(path)
    return found
