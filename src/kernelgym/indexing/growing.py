"""The growing archive of a training run: the correct kernels that its earlier steps found.

Contract: the archive of a step is a function of the episodes of the steps before it, in the order
in which trajectories.jsonl has them, and of nothing else. There is no second store: a run that goes
on reads its own file, and so does `kernelgym export`, which makes the prompts again. Entries are
those of `kernelgym.indexing.played`, at most `MOST`; those of the newest problems are kept.

What an archive may not show is decided where it is searched: nothing that gives a held-out problem
or the problem asked away (`kernelgym.retrieval.exclusion`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelgym.errors import UsageError
from kernelgym.indexing.played import BestKernels
from kernelgym.prompts.observer import Observer
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.retrieval.archive import archive_digest, keep_archive
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.prompt_part import Retrieval

MOST = 4000
"""Largest number of entries of an archive."""


class RunArchive:
    """The archive of a training run, which grows after each step.

    Args:
        most: Most entries that it shows.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._gathered = BestKernels()
        self.step = 0
        """Number of steps whose episodes the archive holds; the next step's prompts show the
        archive.
        """
        self.entries: tuple[IndexEntry, ...] = ()
        """Entries that the archive shows."""

    def __len__(self) -> int:
        return len(self.entries)

    def move_on(self, records: Iterable[EpisodeRecord]) -> None:
        """Add the episodes of a finished step, in their recorded order."""
        for record in records:
            self._gathered.add(record)
        self.entries = tuple(self._gathered.entries()[-self._most :])
        self.step += 1

    def observer(self, observer: Observer) -> Observer:
        """Return an observer whose retrieval shows this archive, too."""
        digest = keep_archive(self.entries)
        parts = (
            dataclasses.replace(part, archive_step=self.step, archive=digest)
            if isinstance(part, Retrieval)
            else part
            for part in observer.parts
        )
        return dataclasses.replace(observer, parts=tuple(parts))

    def state(self) -> dict[str, int | str]:
        """Return step and digest of the archive for a checkpoint, as JSON data."""
        return {"step": self.step, "digest": archive_digest(self.entries)}

    def load(self, state: dict[str, int | str], path: str | Path) -> None:
        """Restore the archive of a checkpoint by reading the run's episodes again.

        Args:
            state: State of the archive, as `state` returned it.
            path: The run's trajectories.jsonl, cut back to the checkpoint.

        Raises:
            UsageError: If the file does not give the archive that the checkpoint had.
        """
        self.read(path, int(state["step"]))
        digest = archive_digest(self.entries)
        if digest != state["digest"]:
            raise UsageError(
                f"the run's archive of step {self.step} had digest {state['digest']}, and {path} "
                f"gives {digest}: episodes were taken out of the file, or this version reads them "
                "differently; restore the file that the run wrote"
            )

    def read(self, path: str | Path, step: int) -> None:
        """Restore the archive of a step by reading a run's episodes.

        Args:
            path: The run's trajectories.jsonl; one that is not there holds no episode.
            step: The step.

        Raises:
            UsageError: If the file cannot be read.
        """
        records = read_records(path) if Path(path).exists() else ()
        self._gathered = BestKernels()
        self.move_on(record for record in records if -1 < step_of(record) < step)
        self.step = step


class RecordedArchives:
    """Archives of a finished run's steps, from which its prompts are made again.

    Args:
        path: The run's trajectories.jsonl.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._by_step: dict[int, tuple[IndexEntry, ...]] | None = None

    def at(self, step: int) -> str:
        """Make the archive of a step available to prompts; return its digest.

        Raises:
            UsageError: If the file cannot be read.
        """
        if self._by_step is None:
            self._by_step = dict(self._read())
        return keep_archive(self._by_step[min(step, max(self._by_step))])

    def observer(self, observer: Observer) -> Observer:
        """Keep the archives that an observer names in this process, and return the observer."""
        for part in observer.parts:
            if isinstance(part, Retrieval) and part.archive_step is not None:
                self.at(part.archive_step)
        return observer

    def _read(self) -> Iterator[tuple[int, tuple[IndexEntry, ...]]]:
        archive = RunArchive()
        yield 0, ()
        of_runs = (record for record in read_records(self._path) if step_of(record) > -1)
        for step, records in itertools.groupby(of_runs, key=step_of):
            while archive.step < step:
                archive.move_on(())
                yield archive.step, archive.entries
            archive.move_on(records)
            yield archive.step, archive.entries


def step_of(record: EpisodeRecord) -> int:
    """Return the step that an episode was played in, or -1."""
    first, _, rest = record.key.partition("/")
    return int(first) if rest and first.isascii() and first.isdigit() else -1
