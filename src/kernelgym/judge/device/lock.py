"""The device lock: keeps judged calls and timing apart, across all processes of this machine.

Contract:

- judged calls share the lock; timing takes it alone, so no other worker uses the device meanwhile;
- a worker that holds a share for long (its kernel compiles or hangs) can see that another worker
  waits to time (`DeviceLock.is_wanted`) and yield the device (`DeviceLock.released`);
- the lock is a `flock`, which the operating system releases when its holder dies.

Programs other than this judge take part through `device_lock`, as the trainer does around its
model's work; one that does not may use the device at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelgym.devices import find_device
from kernelgym.file_lock import is_free, locked, take
from kernelgym.judge.stage_clock import StageClock
from kernelgym.paths import cache_folder

# Two looks at a blocked device that lie less than this apart belong to one wait: the time between
# them counts as blocked, too.
_ONE_WAIT_S = 2.0


def lock_name(device: str) -> str:
    """Return the name of a device's lock, equal in every process.

    A GPU's is its UUID, since processes number the devices they see differently.

    Args:
        device: ``cpu`` or the name of a GPU, such as ``cuda:0``, in this process.
    """
    if device == "cpu":
        return "cpu"
    import torch

    return f"gpu-{torch.cuda.get_device_properties(device).uuid}"


@contextlib.contextmanager
def device_lock(device: str, folder: str | Path | None = None) -> Iterator[None]:
    """Keep kernels on a device from being timed during the block.

    For programs that use a device on which kernels are judged, such as a trainer whose model
    samples there. The block begins once no kernel is being timed, and timing waits for its end;
    kernels whose outputs are checked run meanwhile. The lock is shared, so
    several holders do not wait for each other, and a thread that holds it may take it again.

    Work that was launched on a GPU goes on after the block unless the caller waits for it there
    (``torch.cuda.synchronize``). Do not hold the lock while waiting for a verdict: the judge would
    wait for the lock.

    Args:
        device: ``cpu`` or the name of a GPU, such as ``cuda:0``, in this process.
        folder: The evaluator's ``cache_dir``; `kernelgym.paths.cache_folder` if None.

    Raises:
        UsageError: If that device is not there.

    Examples:
        >>> with device_lock("cpu"):
        ...     pass  # no kernel is timed on the CPU meanwhile
    """
    where = cache_folder() if folder is None else Path(folder)
    path = where / f"{lock_name(find_device(device))}.lock"
    held = _of_this_thread.locks
    if path not in held:
        # One object a thread: a second share of its own would wait for a worker that waits to time
        # a kernel, which waits for the first share.
        held[path] = DeviceLock(path, StageClock())
    with held[path].shared():
        yield


class DeviceLock:
    """A shared or exclusive lock on a file, created with its folder if missing.

    A worker that waits to hold the lock alone holds a second lock, the gate, meanwhile. A worker
    that wants a share must pass the gate first. Without the gate, a steady stream of shared
    holders would keep the exclusive one waiting for ever.

    One object serves one thread. A thread that holds a share may ask for it again; the inner
    request does nothing.

    Args:
        path: The lock's file.
        clock: Counts the time spent waiting for the lock.
    """

    def __init__(self, path: Path, clock: StageClock) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._gate = path, path.with_suffix(".gate")
        self._half_done = path.with_suffix(".halfway")
        self._blocked_file = path.with_suffix(".vain")
        self._clock = clock
        self._held = -1  # descriptor of the shared lock
        self.before_release: Callable[[], object] = lambda: None
        """Function that is called before a share is released; it ends work that would disturb the
        timing of another worker's kernel."""

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock together with other shared holders."""
        if self.is_shared:
            return contextlib.nullcontext()
        return self._clock.waiting(self._shared())

    @contextlib.contextmanager
    def shared_now(self) -> Iterator[bool]:
        """Hold a share if that takes no waiting; yields True if held."""
        if self.is_shared:
            yield True
            return
        try:
            with locked(self._gate, fcntl.LOCK_SH | fcntl.LOCK_NB):
                self._held = take(self._path, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            self._drop()

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Wait until no other holder is left, and hold the lock alone."""
        return self._clock.waiting(self._exclusive())

    @property
    def is_shared(self) -> bool:
        """Whether this object holds a share."""
        return self._held >= 0

    def is_wanted(self) -> bool:
        """Return True if a share held here keeps another worker waiting."""
        return self.is_shared and not is_free(self._gate, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Release the shared lock during the block, and take it again afterwards.

        The caller must have halted the candidate for whose run it took the shared lock.
        """
        self.before_release()
        self._drop()
        try:
            yield
        finally:
            with self._clock.stage("queue"):
                self._take()

    @contextlib.contextmanager
    def halfway(self) -> Iterator[None]:
        """Mark, during the block, that a candidate is halted in the middle of its work.

        What it has launched before may still run on the device.
        """
        with locked(self._half_done, fcntl.LOCK_SH):
            yield

    def is_halfway(self) -> bool:
        """Return True if a candidate of any worker is halted in the middle of its work."""
        return not is_free(self._half_done, fcntl.LOCK_EX)

    def note_device_blocked(self, seconds: float) -> None:
        """Add to the time for which a busy device blocked timing.

        Any worker may add to it. The time since the addition before this one counts as blocked,
        too, if that is less than two seconds ago.

        Args:
            seconds: For how long, up to now, the lock was held alone while the device was busy.
        """
        now, (total_s, before) = time.monotonic(), self._read_blocked()
        if 0.0 <= now - seconds - before < _ONE_WAIT_S:
            seconds = now - before
        new = self._blocked_file.with_name(f"{self._blocked_file.name}.{os.getpid()}")
        new.write_text(f"{total_s + seconds!r} {now!r}", encoding="ascii")
        new.replace(self._blocked_file)

    def device_blocked_s(self) -> float:
        """Return the total seconds for which a busy device blocked all workers."""
        return self._read_blocked()[0]

    def since_device_blocked_s(self) -> float:
        """Return the seconds since a worker last found the device busy."""
        ago = time.monotonic() - self._read_blocked()[1]
        # The monotonic clock starts anew with the machine: a later time is from an earlier boot.
        return ago if ago >= 0.0 else math.inf

    def _read_blocked(self) -> tuple[float, float]:
        try:
            total_s, moment = self._blocked_file.read_text(encoding="ascii").split()
            return float(total_s), float(moment)
        except (OSError, ValueError):  # the file is missing or damaged
            return 0.0, -math.inf

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        self._take()
        try:
            yield
        finally:
            self._drop()

    def _take(self) -> None:
        with locked(self._gate, fcntl.LOCK_SH):
            self._held = take(self._path, fcntl.LOCK_SH)

    def _drop(self) -> None:
        held, self._held = self._held, -1
        os.close(held)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with locked(self._gate, fcntl.LOCK_EX), locked(self._path, fcntl.LOCK_EX):
            yield


class _Locks(threading.local):
    """Device locks that a thread holds by `device_lock`."""

    def __init__(self) -> None:
        self.locks: dict[Path, DeviceLock] = {}


_of_this_thread = _Locks()
