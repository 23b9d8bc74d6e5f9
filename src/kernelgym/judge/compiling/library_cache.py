"""The cache of finished extensions, keyed by content and shared by all workers of this machine.

Contract:

- the folder is kept under a size limit; the least recently used entries are removed first;
- a worker marks an entry as used under a shared lock, and entries are removed under an exclusive
  one. So no worker removes a library that another has just been given;
- neither candidates nor compilers can read the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym.disk_limit import Entry, over_limit
from kernelgym.file_lock import locked
from kernelgym.judge.compiling.compiler_process import bounded
from kernelgym.judge.compiling.library_symbols import NOTHING_LEFT, LibraryWork
from kernelgym.judge.compiling.machine_code import NO_CODE, MachineCode, joined
from kernelgym.types import Build

CACHE_BYTES = 4 << 30
_IN_USE_S = 60.0  # a library is copied within milliseconds after `find` returns it
_OBJECT_IN_USE_S = 86400.0  # an object file is used only at the end of a build, by the linker
_ABANDONED_S = 3600.0
_STAGING = "staging-"
_NOTE = "-built.json"


@dataclass(frozen=True, slots=True)
class BuiltLibrary:
    """Outcome of building one extension."""

    path: str
    """Path of the library; empty if it did not build."""
    module: str
    """Name under which Python imports it; unique to the library."""
    log: str
    """The compiler's output, shortened."""
    cached: bool = False
    """Whether an earlier build left it; no compiler ran."""
    may_pass_later: bool = False
    """Whether the build failed because time or memory ran out, so that the same source may build
    later."""
    work: LibraryWork = NOTHING_LEFT
    """Work that the library leaves to other libraries."""
    code: MachineCode = NO_CODE
    """Machine code in the library, as far as known."""
    starved_s: float = 0.0
    """Seconds of the build in which other programs took the processors."""


def build_of(made: Iterable[BuiltLibrary]) -> Build | None:
    """Return the `Build` of a verdict from a kernel's builds; None if there were none.

    Args:
        made: The builds, each once, in their order.
    """
    builds = [built for built in made if built.log or built.code is not NO_CODE]
    if not builds:
        return None
    code = functools.reduce(joined, [built.code for built in builds])
    log = bounded("\n".join(built.log for built in builds if built.log))
    return Build(log, code.digest, code.functions)


class LibraryCache:
    """A folder of finished libraries and of object files that they share.

    Args:
        folder: The folder; created if missing.
        limit_bytes: Size above which entries are removed.
    """

    def __init__(self, folder: Path, limit_bytes: int = CACHE_BYTES) -> None:
        self.folder, self._limit_bytes = folder, limit_bytes
        self._lock = folder / ".lock"
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> BuiltLibrary | None:
        """Return a library and mark it as used; None if missing."""
        folder = self.folder / key
        try:
            with locked(self._lock, fcntl.LOCK_SH):
                record = json.loads((folder / "built.json").read_text())
                os.utime(folder)
            return BuiltLibrary(
                str(folder / "extension.so"),
                record["module"],
                record["log"],
                cached=True,
                work=LibraryWork(tuple(record["hidden"]), tuple(record["beside"])),
                code=MachineCode.from_dict(record["code"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def file(self, built: BuiltLibrary, key: str) -> BuiltLibrary:
        """Move a finished library into the cache; an existing entry with the same key stays."""
        folder = self.folder / key
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.folder))
        shutil.move(built.path, staging / "extension.so")
        record = {"module": built.module, "log": built.log, **dataclasses.asdict(built.work)}
        record["code"] = dataclasses.asdict(built.code)
        (staging / "built.json").write_text(json.dumps(record))
        try:
            with locked(self._lock, fcntl.LOCK_SH):
                try:
                    staging.rename(folder)
                except OSError:
                    os.utime(folder)
                    shutil.rmtree(staging, ignore_errors=True)
        finally:
            self.cut_back()
        return dataclasses.replace(built, path=str(folder / "extension.so"))

    def find_object(self, name: str) -> Path | None:
        """Return an object file and mark it as used; None if missing."""
        path = self.folder / name
        with contextlib.suppress(OSError), locked(self._lock, fcntl.LOCK_SH):
            os.utime(path)
            return path
        return None

    def file_object(self, source: Path, name: str) -> Path:
        """Move an object file into the cache, replacing an equal one."""
        os.replace(source, self.folder / name)
        return self.folder / name

    def note(self, kernel: str, paths: Sequence[Path], scratch: Path) -> None:
        """Record which files were built for a kernel, for `built_for`.

        Args:
            kernel: Digest of the kernel.
            paths: The files, in this folder.
            scratch: Folder for a temporary file, on the same disk.
        """
        folders = (path.relative_to(self.folder) for path in paths if path.exists())
        fd, made = tempfile.mkstemp(dir=scratch)
        with os.fdopen(fd, "w") as file:
            json.dump([str(path) for path in folders], file)
        self.file_object(Path(made), f"{kernel}{_NOTE}")

    def built_for(self, kernel: str) -> dict[str, bytes]:
        """Return the cached files that were built for a kernel, by name.

        Args:
            kernel: Digest of the kernel.
        """
        found: dict[str, bytes] = {}
        with contextlib.suppress(OSError, ValueError, TypeError), locked(self._lock, fcntl.LOCK_SH):
            for number, name in enumerate(
                json.loads((self.folder / f"{kernel}{_NOTE}").read_text())
            ):
                path = self.folder / name
                plain = path.name if path.parent != self.folder else path.name.partition("-")[2]
                stem, dot, suffix = plain.rpartition(".")
                plain = plain if plain not in found else f"{stem}_{number + 1}{dot}{suffix}"
                found[plain] = path.read_bytes()
        return found

    def cut_back(self) -> None:
        """Remove the least recently used entries while above the limit."""
        gone = []
        with locked(self._lock, fcntl.LOCK_EX):
            now = time.time()
            entries = []
            for found in os.scandir(self.folder):
                with contextlib.suppress(OSError):  # another worker has just renamed it
                    used = found.stat(follow_symlinks=False).st_mtime
                    if found.name.startswith(_STAGING):
                        if now - used > _ABANDONED_S:
                            gone.append(found.path)
                    elif not found.name.startswith("."):
                        in_use_s = _IN_USE_S if found.is_dir() else _OBJECT_IN_USE_S
                        in_use = now - used < in_use_s
                        entries.append(Entry(used, _size(found), found.path, in_use))
            for entry in over_limit(entries, self._limit_bytes):
                # Renamed under the lock, deleted after it: deleting gigabytes would block others.
                hidden = tempfile.mkdtemp(prefix=_STAGING, dir=self.folder)
                os.rename(entry.path, f"{hidden}/gone")
                gone.append(hidden)
        for path in gone:
            shutil.rmtree(path, ignore_errors=True)


def _size(entry: os.DirEntry[str]) -> int:
    if not entry.is_dir(follow_symlinks=False):
        return entry.stat(follow_symlinks=False).st_size
    return sum(file.stat(follow_symlinks=False).st_size for file in os.scandir(entry.path))
