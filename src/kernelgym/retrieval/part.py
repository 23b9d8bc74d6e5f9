"""The observer's part that shows solved problems like the one asked.

Contract: a `Retrieval` is frozen plain data, so that it can be recorded, compared and given by a
configuration; two equal ones show the same. Indexes are loaded once per process, by name, or by
folder and digest. What is shown is a pure function of part, problem and room, and is remembered: an
observer asks several times a turn. `ready_retrieval` finds what is wrong before the first turn, and
notes the index's digest, by which a recorded prompt is made again or refused. Where a search fails
after that, as an embedder may, nothing is shown and a warning says why.

With ``when="adaptive"`` the first user message shows the same solutions at every turn, and what is
told of an attempt is followed by repairs of kernels that failed alike, or by speed-ups once it is
correct.

With ``archive_step`` a training run's own kernels are shown beside the index: those that its steps
before that one found (`kernelgym.retrieval.archive`).
"""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.fields import from_fields
from kernelgym.prompts.parts import Addition, Room
from kernelgym.retrieval.archive import archive_index, check_archive
from kernelgym.retrieval.cover import DIVERSITIES
from kernelgym.retrieval.entry import KINDS, Entry
from kernelgym.retrieval.folder import read_index, read_manifest
from kernelgym.retrieval.index import POOL, Index, Neighbour
from kernelgym.retrieval.page import fitting_page
from kernelgym.retrieval.repairs import similar_repairs, similar_speedups
from kernelgym.retrieval.search import ENGINES
from kernelgym.suites import suite as find_suite
from kernelgym.tokens import TokenCounter
from kernelgym.types import Problem, Turn

__all__ = [
    "INDEXES",
    "Retrieval",
    "When",
    "load_index",
    "load_indexes",
    "part_of_suite",
    "ready_retrieval",
    "retrieval_of",
]

INDEXES = ("synthetic",)
"""Indexes that have a name; others are folders."""

When = Literal["first", "always", "adaptive"]
_REMEMBERED = 4096
_LEVEL = re.compile(r"L\d+")


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Shows solved problems like the one asked; equal ones show the same.

    Raises:
        UsageError: If a field is unknown or out of range.
    """

    index: str = "synthetic"
    """Name of an index, or the folder of one that `kernelgym index build` wrote."""
    k: int = 3
    """Most entries that are shown."""
    tokens: int = 2000
    """Most tokens that they take; an entry is shown whole or not at all."""
    kinds: tuple[str, ...] = ("solution",)
    """Kinds of entries."""
    when: When = "first"
    """``first``: before the first answer only; ``always``: the same at every turn; ``adaptive``:
    solutions at every turn, and after an attempt what helps it: repairs or speed-ups."""
    same_problem: bool = False
    """Show entries of the problem asked, and its twins, too."""
    diversity: str = "cover"
    """``cover``: those that together show most operators; ``nearest``: the most similar."""
    digest: str = ""
    """The index's digest; empty for the index as it is."""
    model: str = ""
    """Folder or name of the index's embedder, where that is not where it was at the build."""
    engine: str = "numpy"
    """What searches an index in a folder: ``numpy``, or ``faiss``; both find the same."""
    hold_out: tuple[str, ...] = ()
    """Parts of suites that no entry may give away, whatever problem is asked, each written
    ``SUITE[:SPLIT[:IDS]]``, such as ``Synthetic:heldout``."""
    archive_step: int | None = None
    """Step of a training run, whose archive of the steps before is shown, too; None without one."""
    archive: str = ""
    """The archive's digest."""

    def __post_init__(self) -> None:
        for name in ("k", "tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"retrieval's {name} is a whole number, at least 1, got {value!r}; leave "
                    "retrieval out to show no examples"
                )
        for name in ("index", "model"):
            place: object = getattr(self, name)
            if isinstance(place, Path):
                object.__setattr__(self, name, str(place))
            elif not isinstance(place, str):
                raise UsageError(
                    f"retrieval's {name} is a name or a folder, got {place!r}; known indexes: "
                    f"{', '.join(INDEXES)}"
                )
        if not isinstance(self.digest, str):
            raise UsageError(
                f"retrieval's digest is sixteen hex digits, got {self.digest!r}; leave it out to "
                "take the index as it is"
            )
        given: object = self.kinds  # a file gives back a list
        if not isinstance(given, str | tuple | list):
            raise UsageError(
                f"retrieval's kinds are some of {', '.join(KINDS)}, got {given!r}; give a tuple "
                "such as ('solution',)"
            )
        kinds = (given,) if isinstance(given, str) else tuple(given)
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownName("kind of entry", kind, KINDS)
        if not kinds:
            raise UsageError(f"retrieval shows at least one kind of entry: {', '.join(KINDS)}")
        object.__setattr__(self, "kinds", kinds)
        if self.engine not in ENGINES:
            raise UnknownName("engine of search", self.engine, ENGINES)
        parts: object = self.hold_out
        if isinstance(parts, str):
            parts = (parts,)
        if not isinstance(parts, tuple | list) or not all(isinstance(p, str) and p for p in parts):
            raise UsageError(
                f"retrieval's hold_out are texts such as 'Synthetic:heldout', got {self.hold_out!r}"
            )
        object.__setattr__(self, "hold_out", tuple(parts))
        if self.when not in get_args(When):
            raise UnknownName("time of retrieval", self.when, get_args(When))
        if self.when == "adaptive" and not {"repair", "speedup"} & set(kinds):
            raise UsageError(
                "retrieval's when='adaptive' shows repairs and speed-ups after attempts, and its "
                f"kinds are {kinds}; add 'repair' or 'speedup', or leave when out"
            )
        if self.diversity not in DIVERSITIES:
            raise UnknownName("diversity of retrieval", self.diversity, DIVERSITIES)
        step: object = self.archive_step
        if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
            raise UsageError(
                f"retrieval's archive_step is a step of a run, from 0 on, or None; got {step!r}"
            )
        if not isinstance(self.archive, str) or (step is None) != (self.archive == ""):
            raise UsageError(
                f"retrieval's archive is the digest of the archive of archive_step={step}, got "
                f"{self.archive!r}; a training run sets both (retrieval.archive=true)"
            )
        if not isinstance(self.same_problem, bool):
            raise UsageError(
                f"retrieval's same_problem is True or False, got {self.same_problem!r}"
            )

    def __call__(self, problem: Problem, turns: Sequence[Turn], room: Room) -> Addition:
        """Return the page that is shown, and the ids of its entries.

        Raises:
            UsageError: If the index is not the one that `digest` names.
        """
        if turns and self.when == "first":
            return Addition()
        kinds = tuple(k for k in self.kinds if k == "solution" or self.when != "adaptive")
        return self._shown(_addition, (problem, kinds), problem, room) if kinds else Addition()

    def after(self, problem: Problem, turns: Sequence[Turn], room: Room) -> Addition:
        """Return what follows the feedback of the last of these turns.

        Raises:
            UsageError: If the index is not the one that `digest` names.
        """
        if self.when != "adaptive" or not turns:
            return Addition()
        last = turns[-1]
        kernel, kind = last.reply.kernel, "speedup" if last.verdict.correct else "repair"
        if kernel is None or not last.verdict.valid or kind not in self.kinds:
            return Addition()
        said = "" if kind == "speedup" else str(last.feedback)
        about = (kind, said, last.feedback.category, kernel.source)
        return self._shown(_addition_after, (problem, *about), problem, room)

    def _shown(
        self, find: Callable[..., Addition], about: tuple[object, ...], problem: Problem, room: Room
    ) -> Addition:
        """Return what a search finds; nothing and a warning if it fails."""
        load_indexes(self, room.language, room.device)  # what is wrong is the caller's fault
        most = min(self.tokens, room.tokens)
        asked = (self, room.language, room.device, most, room.count, *about)
        remembered = find if _can_be_key(room.count) else find.__wrapped__  # type: ignore[attr-defined]
        try:
            return remembered(*asked)
        except Exception as error:  # an embedder is code of others
            warnings.warn(
                f"no solved problems are shown for {problem.id}: searching index {self.index!r} "
                f"failed ({type(error).__name__}: {error})",
                RuntimeWarning,
                stacklevel=2,
            )
            return Addition()


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
        return from_fields(Retrieval, "field of retrieval", given)
    raise UsageError(
        "retrieval is an index's name such as 'synthetic', its folder, a mapping such as {'index': "
        f"'synthetic', 'k': 3}}, or a kernelgym.Retrieval; got {given!r}"
    )


def ready_retrieval(given: object, language: str, device: str) -> Retrieval:
    """Return a `Retrieval` whose index is loaded and whose digest is noted.

    Args:
        given: As for `retrieval_of`.
        language: Language of the kernels.
        device: Device they run on.

    Raises:
        UsageError: If the index is unknown or damaged, another one than its digest says, holds no
            entry of the language and kinds, or fewer than k.
    """
    retrieval = retrieval_of(given)
    digest = _whole_index(retrieval, language, device).digest
    index = load_indexes(retrieval, language, device)[0]
    there = sum(entry.kind in retrieval.kinds for entry in index.entries)
    kinds = " and ".join(retrieval.kinds)
    if not there:
        raise UsageError(
            f"index {retrieval.index!r} holds no entry of kind {kinds} in {language!r}; choose "
            "other kinds, or another index"
        )
    if retrieval.k > there:
        raise UsageError(
            f"retrieval's k={retrieval.k} is above the {there} entries of kind {kinds} that index "
            f"{retrieval.index!r} holds in {language!r}; lower it"
        )
    return dataclasses.replace(retrieval, digest=digest)


def load_index(retrieval: Retrieval, language: str, device: str) -> Index:
    """Return what of an index may be shown; loaded once per process.

    Raises:
        UsageError: If there is none of that name or language, it is damaged, its digest is
            another one, or a part that is held out does not exist.
    """
    index = _whole_index(retrieval, language, device)
    return _without_answers(index, retrieval.hold_out) if retrieval.hold_out else index


def load_indexes(retrieval: Retrieval, language: str, device: str) -> tuple[Index, ...]:
    """Return what is searched: the index, and the archive if named.

    Raises:
        UsageError: What `load_index` raises; or if the archive is not there.
    """
    index = load_index(retrieval, language, device)
    if retrieval.archive_step is None:
        return (index,)
    check_archive(retrieval.archive, retrieval.archive_step)
    held_out = _held_out(retrieval.hold_out)
    return index, archive_index(retrieval.archive, language, index, held_out)


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
    if retrieval.index not in INDEXES:
        return _folder_index(retrieval, language)
    # The corpus is written by the Synthetic suite, which other environments do without.
    from kernelgym.retrieval.synthetic import synthetic_index

    index = synthetic_index(language, _size(device))
    _check_digest(retrieval, index.digest, "use the version of kernelgym that showed them")
    return index


_LOADED: dict[tuple[str, ...], Index] = {}
"""By folder, language, digest, model and engine. A folder that is gone is not missed."""


def _folder_index(retrieval: Retrieval, language: str) -> Index:
    folder, model, engine = retrieval.index, retrieval.model, retrieval.engine
    if not Path(folder).is_dir() and (retrieval.digest == "" or not _LOADED):
        raise UnknownName(
            "index", folder, INDEXES, "The folder that `kernelgym index build` wrote is one, too."
        )
    place = os.path.realpath(folder)
    if retrieval.digest:
        known = _LOADED.get((place, language, retrieval.digest, model, engine))
        if known is not None:
            return known
    there = read_manifest(place)["languages"].get(language, {}).get("digest", "")
    key = (place, language, there, model, engine)
    if key not in _LOADED:
        index = read_index(place, language, model=model, engine=engine)
        key = (place, language, index.digest, model, engine)
        _LOADED[key] = index
    _check_digest(retrieval, key[2], "give back the index that showed them")
    return _LOADED[key]


def _check_digest(retrieval: Retrieval, digest: str, instead: str) -> None:
    if retrieval.digest not in ("", digest):
        raise UsageError(
            f"index {retrieval.index!r} has digest {digest} here, and examples of digest "
            f"{retrieval.digest} were shown; {instead}, or leave the digest out to show those that "
            "are there"
        )


def _size(device: str) -> Literal["cpu", "gpu"]:
    """Return for which sizes the embedded corpus's kernels are written."""
    return "cpu" if device.partition(":")[0] == "cpu" else "gpu"


def _can_be_key(value: object) -> bool:
    """Return True if a value has a hash; some counters have none."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=_REMEMBERED)
def _addition(
    retrieval: Retrieval,
    language: str,
    device: str,
    most: int,
    count: TokenCounter,
    problem: Problem,
    kinds: tuple[str, ...],
) -> Addition:
    """Return the page for a problem, of at most so many tokens."""
    same, wanted = retrieval.same_problem, retrieval.k + POOL

    def search(index: Index) -> Sequence[Neighbour]:
        return index.search(problem, wanted, kinds=kinds, same_problem=same).neighbours

    pool = _best(load_indexes(retrieval, language, device), search, wanted)
    chosen = DIVERSITIES[retrieval.diversity](problem.source, pool, retrieval.k)
    return _added([neighbour.entry for neighbour in chosen], language, most, count)


@lru_cache(maxsize=_REMEMBERED)
def _addition_after(
    retrieval: Retrieval,
    language: str,
    device: str,
    most: int,
    count: TokenCounter,
    problem: Problem,
    kind: str,
    said: str,
    category: str,
    kernel: str,
) -> Addition:
    """Return the page after an attempt, of at most so many tokens."""
    same, k = retrieval.same_problem, retrieval.k

    def search(index: Index) -> Sequence[Neighbour]:
        if kind == "speedup":
            return similar_speedups(index, problem, k, device=device, same_problem=same)
        return similar_repairs(
            *(index, problem, k),
            feedback=said,
            category=category,
            kernel=kernel,
            same_problem=same,
        )

    found = _best(load_indexes(retrieval, language, device), search, k)
    return _added([neighbour.entry for neighbour in found], language, most, count)


def _best(
    indexes: Sequence[Index], search: Callable[[Index], Sequence[Neighbour]], k: int
) -> tuple[Neighbour, ...]:
    """Return the best of several indexes, each entry once."""
    found: dict[str, Neighbour] = {}
    for index in indexes:
        for neighbour in search(index):
            found.setdefault(neighbour.entry.id, neighbour)
    ranked = sorted(found.values(), key=lambda each: (-each.score, each.entry.id))
    return tuple(ranked[:k])


def _added(entries: Sequence[Entry], language: str, most: int, count: TokenCounter) -> Addition:
    text, shown, tokens = fitting_page(entries, language, most, count)
    return Addition(text, tuple(entry.id for entry in shown), tokens)
