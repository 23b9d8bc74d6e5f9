"""The observer's part that shows solved problems like the one asked.

Contract: a `Retrieval` is frozen plain data, so that it can be recorded, compared and given by a
configuration; two equal ones show the same. Indexes are loaded once per process, by name, or by
folder and digest. What is shown is a pure function of part, problem and room. `ready_retrieval`
finds what is wrong before the first turn, and notes the index's digest, by which a recorded prompt
is made again or refused.

With ``archive_step`` a training run's own kernels are shown beside the index: those that its steps
before that one found (`kernelgym.retrieval.archive`).
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.parts import Addition, Room
from kernelgym.reading import read
from kernelgym.retrieval.archive import archive_index
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.folder import folder_digest, read_index
from kernelgym.retrieval.index import Index, Neighbour
from kernelgym.retrieval.nearest_rows import ENGINES
from kernelgym.retrieval.page import fitting_page
from kernelgym.suites import suite as find_suite
from kernelgym.types import Problem, Turn

INDEXES = ("synthetic",)
"""Functions that make the indexes that have names; every other index is a folder."""

RetrievalTime = Literal["first", "always"]
_LEVEL = re.compile(r"L\d+")


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Part of an observer that shows solved problems like the one asked; equal parts show the same.

    Raises:
        UsageError: If a field is unknown or out of range.
    """

    index: str = "synthetic"
    """Name of an index, or the folder of one that `kernelgym index build` wrote."""
    k: int = 3
    """Largest number of entries that are shown."""
    tokens: int = 2000
    """Largest number of tokens of all shown entries; an entry is shown whole or not at all."""
    least: float = 0.3
    """Smallest similarity of an entry that is shown, from -1 to 1; without such an entry the prompt
    says nothing about solved problems. On KernelBench's levels 1 and 2, the best match in the index
    ``synthetic`` shares a family of operators with 7 of 47 problems below the default, and with 145
    of 153 from there on; embedders that are models have other scales."""
    when: RetrievalTime = "first"
    """``first``: before the first answer only; ``always``: the same at every turn."""
    same_problem: bool = False
    """True to show also entries of the problem asked and of its twins."""
    digest: str = ""
    """Digest of the index that must be shown; empty to take the index as it is."""
    model: str = ""
    """Folder or name of the index's embedder, where that is not where it was at the build."""
    engine: str = "numpy"
    """Engine that searches an index in a folder: ``numpy`` or ``faiss``."""
    hold_out: tuple[str, ...] = ()
    """Parts of suites that no entry may give away, whatever problem is asked, each written
    ``SUITE[:SPLIT[:IDS]]``, such as ``Synthetic:heldout``."""
    archive_step: int | None = None
    """Step of a training run, whose archive of the steps before is shown, too; None without one."""
    archive: str = ""
    """Digest of the archive of `archive_step`; empty without one."""

    def __post_init__(self) -> None:
        for name in ("k", "tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"retrieval's {name} is a whole number, at least 1, got {value!r}; leave "
                    "retrieval out to show no examples"
                )
        least: object = self.least
        if isinstance(least, bool) or not isinstance(least, int | float) or not -1 <= least <= 1:
            raise UsageError(
                f"retrieval's least is a similarity from -1 to 1, got {least!r}; -1 shows the best "
                "matches however unlike they are"
            )
        for name in ("index", "model"):
            place = getattr(self, name)
            if not isinstance(place, str | Path):
                raise UsageError(
                    f"retrieval's {name} is a name or a folder, got {place!r}; known indexes: "
                    f"{', '.join(INDEXES)}"
                )
            object.__setattr__(self, name, str(place))
        if self.engine not in ENGINES:
            raise UnknownName("engine of search", self.engine, ENGINES)
        if self.when not in get_args(RetrievalTime):
            raise UnknownName("time of retrieval", self.when, get_args(RetrievalTime))
        parts: object = self.hold_out
        if isinstance(parts, str):
            parts = (parts,)
        if not isinstance(parts, tuple | list) or not all(isinstance(p, str) and p for p in parts):
            raise UsageError(
                f"retrieval's hold_out are texts such as 'Synthetic:heldout', got {self.hold_out!r}"
            )
        object.__setattr__(self, "hold_out", tuple(parts))  # a file gives back a list
        if (self.archive_step is None) != (self.archive == ""):
            raise UsageError(
                f"retrieval's archive is the digest of the archive of archive_step="
                f"{self.archive_step}, got {self.archive!r}; a training run sets both "
                "(retrieval.archive=true)"
            )

    def __call__(self, problem: Problem, turns: Sequence[Turn], room: Room) -> Addition:
        """Return the page of retrieved entries that a model's prompt shows, and their ids.

        Raises:
            UsageError: If the index is not the one that `digest` names.
        """
        if turns and self.when == "first":
            return Addition()
        indexes = load_indexes(self, room.language, room.device)
        found = _nearest(indexes, problem, self.k, self.same_problem, self.least)
        most = min(self.tokens, room.tokens)
        text, shown, tokens = fitting_page(found, room.language, most, room.count)
        return Addition(text, tuple(entry.id for entry in shown), tokens)


def retrieval_of(given: object) -> Retrieval:
    """Return a `Retrieval` from what an option may hold.

    Args:
        given: An index's name or folder, a mapping of the fields of `Retrieval`, or one itself.

    Raises:
        UsageError: If it is none of these, or a field is unknown.
    """
    if isinstance(given, Retrieval):
        return given
    if isinstance(given, str | Path):
        return Retrieval(str(given))
    if isinstance(given, Mapping):
        return read(Retrieval, given, "retrieval")
    raise UsageError(
        "retrieval is an index's name such as 'synthetic', its folder, a mapping such as {'index': "
        f"'synthetic', 'k': 3}}, or a kernelgym.Retrieval; got {given!r}"
    )


def ready_retrieval(given: object, language: str, device: str) -> Retrieval:
    """Return a `Retrieval` whose index is loaded and whose digest is noted.

    Args:
        given: Index, mapping or `Retrieval`, as `retrieval_of` takes it.
        language: Language of the kernels.
        device: Device that they run on.

    Raises:
        UsageError: If the index is unknown or damaged, another one than its digest says, or holds
            fewer than k entries of the language.
    """
    retrieval = retrieval_of(given)
    digest = _whole_index(retrieval, language, device).digest
    there = len(load_indexes(retrieval, language, device)[0].entries)
    if retrieval.k > there:
        raise UsageError(
            f"retrieval's k={retrieval.k} is above the {there} entries that index "
            f"{retrieval.index!r} holds in {language!r}; lower it, or choose another index"
        )
    return dataclasses.replace(retrieval, digest=digest)


def load_index(retrieval: Retrieval, language: str, device: str) -> Index:
    """Return the part of an index that may be shown; it is loaded once per process.

    Raises:
        UsageError: If there is none of that name or language, it is damaged, its digest is
            another one, or a part that is held out does not exist.
    """
    index = _whole_index(retrieval, language, device)
    return _without_answers(index, retrieval.hold_out) if retrieval.hold_out else index


def load_indexes(retrieval: Retrieval, language: str, device: str) -> tuple[Index, ...]:
    """Return the indexes that are searched: the index, and the archive if `retrieval` names one.

    Raises:
        UsageError: What `load_index` raises; or if the archive is not there.
    """
    index = load_index(retrieval, language, device)
    if retrieval.archive_step is None:
        return (index,)
    held_out = _held_out(retrieval.hold_out)
    named = retrieval.archive, retrieval.archive_step
    return index, archive_index(*named, language, index, held_out)


@lru_cache(maxsize=16)
def _without_answers(index: Index, hold_out: tuple[str, ...]) -> Index:
    return index.without_answers(_held_out(hold_out))[0]


@lru_cache(maxsize=16)
def _held_out(hold_out: tuple[str, ...]) -> tuple[Problem, ...]:
    return tuple(problem for part in hold_out for problem in part_of_suite(part))


def part_of_suite(text: str) -> tuple[Problem, ...]:
    """Return the problems of a part of a suite.

    Args:
        text: ``SUITE``, ``SUITE:SPLIT``, or ``SUITE:SPLIT:IDS``, whose split may be empty. For
            ``IDS``, levels will do: ``Synthetic::L2,L3``.

    Raises:
        UsageError: If there is no such suite, split or problem.
    """
    name, _, rest = text.partition(":")
    split, _, ids = rest.partition(":")
    suite = find_suite(name)
    if ids and all(_LEVEL.fullmatch(each) for each in ids.split(",")):
        levels = [int(each[1:]) for each in ids.split(",")]
        return tuple(p for level in levels for p in suite.problems(level, split=split or None))
    return suite.problems(ids=ids or None, split=split or None)


def _whole_index(retrieval: Retrieval, language: str, device: str) -> Index:
    if retrieval.index in INDEXES:
        # The Synthetic suite writes these entries; environments without retrieval do without it.
        from kernelgym.retrieval.synthetic import size_for, synthetic_index

        index = synthetic_index(language, size_for(device))
    else:
        digest = retrieval.digest or folder_digest(retrieval.index, language)
        place = os.path.realpath(retrieval.index)
        index = _folder_index(place, language, digest, retrieval.model, retrieval.engine)
    if retrieval.digest not in ("", index.digest):
        raise UsageError(
            f"index {retrieval.index!r} has digest {index.digest} here, and examples of digest "
            f"{retrieval.digest} were shown; give back the index or the version of kernelgym that "
            "showed them, or leave the digest out to show those that are there"
        )
    return index


@lru_cache(maxsize=16)
def _folder_index(folder: str, language: str, digest: str, model: str, engine: str) -> Index:
    """Return a folder's index for prompts, cached by digest: a rebuilt index has another one."""
    return read_index(folder, language, model=model, engine=engine)


@lru_cache(maxsize=4096)
def _nearest(
    indexes: tuple[Index, ...], problem: Problem, k: int, same_problem: bool, least: float
) -> tuple[IndexEntry, ...]:
    """Return the k entries most similar to a problem, with at least a given similarity.

    They are cached: an observer asks several times in a turn.
    """
    found: dict[str, Neighbour] = {}
    for index in indexes:
        searched = index.search(problem, k, same_problem=same_problem)
        found |= {neighbour.entry.id: neighbour for neighbour in searched.neighbours}
    ranked = sorted(found.values(), key=lambda each: (-each.score, each.entry.id))
    return tuple(neighbour.entry for neighbour in ranked[:k] if neighbour.score >= least)
