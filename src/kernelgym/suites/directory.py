"""A user's own folder, or single file, of problems in KernelBench's format.

A folder's problems are its ``*.py`` files and those of its subfolders ``level1``, ``level2``, ...;
ids are ``<name>/<stem>`` and ``<name>/L1/<stem>``. Files whose name begins with ``_`` or ``.`` are
left out. Files are read and checked, never run, when problems are first asked for.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from kernelgym.errors import ProblemError
from kernelgym.suites.base import (
    Ids,
    check_choice,
    find_problem,
    natural_key,
    non_empty,
    read_source,
    select_ids,
)
from kernelgym.types import Problem

_LEVEL_FOLDER = re.compile(r"level([1-9]\d*)")


class DirectorySuite:
    """The problems of one folder; level 0 stands for files directly in it.

    Args:
        path: The folder.
        name: First part of the ids; the folder's own name if None.

    Raises:
        ProblemError: If `path` is not a folder.
    """

    splits: tuple[str, ...] = ()

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ProblemError(
                f"{str(path)!r} is not a folder; give a folder of problem files (*.py), or use "
                "problem_from_file for a single one"
            )
        self.name = name if name is not None else self.path.resolve().name

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Levels that hold a problem file."""
        return tuple(sorted({level for level, _ in self._files}))

    def problems(
        self,
        level: int | None = None,
        ids: Ids | None = None,
        split: str | None = None,
    ) -> tuple[Problem, ...]:
        """See `kernelgym.suites.base.Suite.problems`."""
        if not self._files:
            raise ProblemError(
                f"folder {str(self.path)!r} holds no problem file (*.py, in it or in its folders "
                "level1, level2, ...)"
            )
        hint = "level=None takes all; 0 is the folder itself."
        check_choice(f"level of {self.name}", level, self.levels, hint)
        check_choice(f"split of {self.name}", split, self.splits)
        chosen = tuple(p for p in self._problems if level is None or p.level == level)
        if ids is not None and chosen:
            chosen = select_ids(chosen, ids)
        return non_empty(chosen, self.name, level=level, ids=ids)

    def get(self, problem_id: str) -> Problem:
        """See `kernelgym.suites.base.Suite.get`."""
        return find_problem(self._problems, problem_id)

    @cached_property
    def _files(self) -> tuple[tuple[int, Path], ...]:
        folders = {0: [self.path]}
        try:
            entries = sorted(self.path.iterdir())
        except OSError as error:
            raise ProblemError(f"cannot read folder {self.path}: {error.strerror}") from None
        for entry in entries:
            if entry.is_dir() and (match := _LEVEL_FOLDER.fullmatch(entry.name)):
                folders.setdefault(int(match[1]), []).append(entry)
        return tuple(
            (level, path)
            for level in sorted(folders)
            for folder in folders[level]
            for path in sorted(folder.glob("*.py"), key=lambda path: natural_key(path.stem))
            if not path.name.startswith(("_", ".")) and path.is_file()
        )

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        return tuple(
            Problem(
                id=f"{self.name}/L{level}/{path.stem}" if level else f"{self.name}/{path.stem}",
                suite=self.name,
                level=level,
                name=path.stem,
                source=read_source(path),
            )
            for level, path in self._files
        )


def problem_from_file(path: str | Path) -> Problem:
    """Return the problem in one problem file.

    The id is the file's stem; the suite is ``file``.

    Raises:
        ProblemError: If the file cannot be read, is not UTF-8 text or not Python, or does not
            define ``Model``, ``get_inputs`` and ``get_init_inputs``.
    """
    path = Path(path)
    return Problem(f"file/{path.stem}", "file", 0, path.stem, read_source(path))
