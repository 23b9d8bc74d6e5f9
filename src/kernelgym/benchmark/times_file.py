"""Files of reference times, eager and compiled.

A file of times is JSON lines: a head (version, device, machine), then one `ReferenceTime` each, as
they are measured. The same command resumes a file after an interruption.

Contract: a file holds times of one device and one machine; others are refused, since times of
different machines are not comparable. Not covered: measuring (`kernelgym.judge.measuring`) and
KernelBench's layout (`kernelgym.benchmark.baseline_files`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line, read_lines
from kernelgym.reference_time import ReferenceTime, TimeSetting
from kernelgym.suites.known_memory import needed_bytes
from kernelgym.types import Problem

VERSION = 1
_SAME = ("cpu", "gpu", "torch", "triton")
"""Names of the facts of a machine that must be equal for all times in one file."""


@dataclass(frozen=True, slots=True)
class TimesFile:
    """A file of references' times."""

    path: Path
    device: str
    machine: Mapping[str, Any]
    """Facts of the machine, from `kernelgym.machine.machine`."""
    times: tuple[ReferenceTime, ...] = ()

    @classmethod
    def read(cls, path: Path) -> TimesFile:
        """Read a file; the last time of a problem and setting counts.

        Raises:
            UsageError: If the file does not exist, or holds no times.
        """
        rows = [row for _, row in read_lines(path)]
        head = rows[0] if rows else {}
        if head.get("version") != VERSION or "machine" not in head:
            raise UsageError(
                f"{str(path)!r} is not a file of references' times of version {VERSION}; "
                "`kernelgym baseline PROBLEMS --modes eager --out FILE` writes one"
            )
        found = {}
        for row in rows[1:]:
            try:
                time = ReferenceTime.from_dict(row)
            except (KeyError, TypeError, UsageError) as error:
                raise UsageError(
                    f"{str(path)!r} holds a row that cannot be read: {error}"
                ) from None
            found[time.digest, time.setting] = time
        return cls(path, str(head["device"]), head["machine"], tuple(found.values()))

    @classmethod
    def open(cls, path: Path, device: str, machine: Mapping[str, Any]) -> TimesFile:
        """Read a file of times to resume it, or create it.

        Raises:
            UsageError: If it holds times of another device or machine.
        """
        if not path.exists():
            append_line(path, {"version": VERSION, "device": device, "machine": dict(machine)})
        found = cls.read(path)
        for what in ("device", *_SAME):
            theirs = found.device if what == "device" else found.machine.get(what)
            ours = device if what == "device" else machine.get(what)
            if theirs != ours:
                raise UsageError(
                    f"{str(path)!r} holds times of {what} {theirs!r}, and this is {ours!r}; give "
                    "another file to --out"
                )
        return found


def measure_all(
    file: TimesFile,
    asked: Sequence[tuple[Problem, TimeSetting]],
    measure: Callable[[Problem, TimeSetting], ReferenceTime],
    *,
    refresh: bool = False,
    advance: Callable[[], None] = lambda: None,
    workers: int = 1,
    memory_bytes: int = 0,
    until: Callable[[], bool] = lambda: False,
) -> tuple[ReferenceTime, ...]:
    """Measure the references that a file lacks, and write each time at once.

    Args:
        file: The file, as it is.
        asked: Pairs of a problem and the setting in which it is timed, each once.
        measure: Function that times one reference; several threads call it if there are several
            `workers`.
        refresh: Measure what the file has, too, failures included.
        advance: Function that is called after each pair.
        workers: Number of references measured at the same time, in order as far as memory allows.
        memory_bytes: Largest memory that they take together; a reference whose need is unknown is
            measured alone. 0 sets no limit.
        until: Function that is called before each measurement; once it returns True, no further
            measurement begins.

    Returns:
        The times in the order of `asked`, without those that were not begun.
    """
    known = {} if refresh else {(time.digest, time.setting): time for time in file.times}
    found = {n: known[p.digest, s] for n, (p, s) in enumerate(asked) if (p.digest, s) in known}
    for _ in found:
        advance()
    left = [n for n in range(len(asked)) if n not in found]
    room, writing = _Room(memory_bytes), threading.Lock()

    def work() -> None:
        while left and not until():
            with room.of(left, lambda n: needed_bytes(asked[n][0])) as n:
                if n is None:
                    return
                try:
                    time = measure(*asked[n])
                except BaseException:
                    left.clear()  # the other threads end, too
                    raise
            with writing:
                append_line(file.path, time.to_dict())
                found[n] = time
                advance()

    if workers == 1:
        work()
    else:
        with ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(work) for _ in range(workers)]:
                done.result()
    return tuple(found[n] for n in sorted(found))


class _Room:
    """Memory budget in bytes, which threads that measure references share."""

    def __init__(self, size: int) -> None:
        self._size, self._taken, self._count = size, 0, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, left: list[int], need: Callable[[int], int | None]) -> Iterator[int | None]:
        """Return the first reference in `left` whose memory fits the budget; None if none is left.

        A reference that needs more than the budget, or an unknown amount, is measured alone.
        """
        with self._changed:
            while left and not any(self._fits(need(n)) for n in left):
                self._changed.wait()
            n = next((n for n in left if self._fits(need(n))), None)
            size = 0
            if n is not None:
                left.remove(n)
                size = self._size if (needed := need(n)) is None else needed
            self._taken, self._count = self._taken + size, self._count + 1
        try:
            yield n
        finally:
            with self._changed:
                self._taken, self._count = self._taken - size, self._count - 1
                self._changed.notify_all()

    def _fits(self, needed: int | None) -> bool:
        if not self._count or not self._size:
            return True
        return needed is not None and self._taken + needed <= self._size
