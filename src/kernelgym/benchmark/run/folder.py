"""The files of an eval run: reading answers and verdicts, and appending more.

Contract:

- one process writes a run at a time: `RunFolder` holds its lock (`kernelgym.records.run_lock`);
- `RunJournal.append` returns once the disk has the line. Lines that wait at the same time are
  written and synced together;
- memory holds the offsets of lines, not their contents;
- a last line that a killed process left incomplete is ignored, and the next append removes it.

Files: ``generations.jsonl`` (an answer a line), ``verdicts.jsonl``, ``failures.jsonl`` and
``trajectories.jsonl``. If two lines have the same key, the later one counts; a failure counts only
while no answer has its key.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from kernelgym.benchmark.run.generations import AnswerKey, Generation, recorded_verdict
from kernelgym.benchmark.run.plan import sample_of
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import (
    append_lines,
    index_lines,
    line_at,
    read_lines,
    reorder_lines,
)
from kernelgym.records.run_lock import RunLock
from kernelgym.types import Kernel, Verdict

GENERATIONS = "generations.jsonl"
VERDICTS = "verdicts.jsonl"
FAILURES = "failures.jsonl"
TRAJECTORIES = "trajectories.jsonl"


class RunJournal:
    """Writer that appends lines to a file; an append returns once the line is on disk.

    Args:
        path: The file; it is created with the first line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, row: Mapping[str, Any]) -> None:
        """Append one line; return once it is on disk.

        Raises:
            UsageError: If the file cannot be written.
            OSError: If the disk is full.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await written

    async def close(self) -> None:
        """Wait until every line is written."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                rows = [row for row, _ in group]
                failed: Exception | None = None
                try:
                    await asyncio.to_thread(append_lines, self._path, rows, sync=True)
                except Exception as error:
                    failed = error
                for _, written in group:
                    if written.done():  # its caller was cancelled
                        continue
                    if failed is None:
                        written.set_result(None)
                    else:
                        written.set_exception(failed)
        finally:
            self._writing = None


class RunFolder:
    """Files of one run, locked by this process until they are closed.

    Args:
        path: The folder; it is created if it does not exist.

    Raises:
        UsageError: If it cannot be made, another process holds it, or a file in it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot keep a run in {str(path)!r}: {error.strerror}") from None
        self._lock = RunLock(path)
        try:
            self.generations = RunJournal(path / GENERATIONS)
            self.verdicts = RunJournal(path / VERDICTS)
            self.failures = RunJournal(path / FAILURES)
            self.trajectories = RunJournal(path / TRAJECTORIES)
            self._answers = index_lines(path / GENERATIONS, AnswerKey.of)
            self._judged = index_lines(path / VERDICTS, AnswerKey.of)
        except BaseException:
            self._lock.close()
            raise

    @property
    def answers(self) -> int:
        """Number of answers that were on disk when the folder was opened."""
        return len(self._answers)

    def generation(self, key: AnswerKey) -> Generation | None:
        """Return an answer that was on disk when the folder was opened; else None.

        Raises:
            UsageError: If its line is damaged.
        """
        if (offset := self._answers.get(key)) is None:
            return None
        path = self.path / GENERATIONS
        try:
            return Generation.from_dict(line_at(path, offset))
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path}: the line of {tuple(key)} makes no sense: {error}") from None

    def verdict(self, key: AnswerKey, kernel: Kernel) -> Verdict | None:
        """Return the valid verdict of an answer's kernel if it was on disk at the start; else None.

        Raises:
            UsageError: If its line is damaged.
        """
        if (offset := self._judged.get(key)) is None:
            return None
        path = self.path / VERDICTS
        digest, found = recorded_verdict(line_at(path, offset), f"{path}, {tuple(key)}")
        return found if digest == kernel.digest and found.valid else None

    def has_verdict(self, key: AnswerKey) -> bool:
        """Return True if the answer has a verdict on disk, even an `unavailable` one."""
        return key in self._judged

    def statuses(self, episodes: Collection[tuple[str, int]]) -> Counter[str]:
        """Return the number of verdicts on disk by status, of some episodes."""
        path = self.path / VERDICTS
        chosen = (at for key, at in self._judged.items() if (key.problem, key.sample) in episodes)
        return Counter(str(line_at(path, offset)["verdict"]["status"]) for offset in chosen)

    def spent_usd(self) -> float:
        """Return the US dollars spent on the answers and failures on disk."""
        paths = (self.path / GENERATIONS, self.path / FAILURES)
        return math.fsum(
            row.get("usd") or 0.0 for path in paths if path.exists() for _, row in read_lines(path)
        )

    def keep_ended(self) -> set[tuple[str, int]]:
        """Return the episodes that have ended; remove the lines of others.

        An episode that was cut because an answer or a verdict failed is played on.

        Raises:
            UsageError: If a line is not an episode of an eval run.
        """
        path = self.path / TRAJECTORIES
        open_ones: set[tuple[str, int]] = set()

        def key(row: Mapping[str, Any]) -> tuple[str, int]:
            name = sample_of(row["key"])
            (open_ones.add if row["ended"] in ("", "cut") else open_ones.discard)(name)
            return name

        found = index_lines(path, key)
        ended = {name: offset for name, offset in found.items() if name not in open_ones}
        if open_ones:
            reorder_lines(path, ended.values())
        return set(ended)

    def order(self, episodes: Iterable[tuple[str, int]]) -> int:
        """Sort ``trajectories.jsonl`` into the given order; return its number of episodes."""
        path = self.path / TRAJECTORIES
        if not path.exists():
            return 0
        found = index_lines(path, lambda row: sample_of(row["key"]))
        wanted = [found[name] for name in episodes if name in found]
        if wanted != sorted(wanted) or len(wanted) != len(found):
            reorder_lines(path, wanted)
        return len(wanted)

    async def close(self) -> None:
        """Write the waiting lines, and release the lock."""
        try:
            for journal in (self.generations, self.verdicts, self.failures, self.trajectories):
                await journal.close()
        finally:
            self._lock.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
