"""KernelBench's problems, from a local checkout or from the Hugging Face dataset.

A checkout wins if one is named (argument or environment variable ``KERNELBENCH_ROOT``: the
repository's root, or its dataset folder that holds ``level1`` and so on); otherwise the dataset
``ScalingIntelligence/KernelBench`` is loaded, or its local copy if the hub cannot be reached. A
level is read when it is first asked for, and kept. Nothing of KernelBench is shipped here.

Splits: ``train`` and ``test`` keep every operator family on one side, since KernelBench is full
of near-duplicates (18 square-ish matmuls, 34 convolutions); see `TEST_FAMILIES`.
``representative`` is KernelBench's own subset.

With ``sizes="small"`` the suite lists small forms instead, whose ids end in ``@small`` (see
`kernelgym.suites.kernelbench_small`). `get` returns what an id says, whatever the suite lists.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from kernelgym.errors import ProblemError, UnknownName
from kernelgym.hub import ask_hub, offline
from kernelgym.suites.base import (
    Ids,
    check_choice,
    check_source,
    find_problem,
    non_empty,
    problem_number,
    read_source,
    select_ids,
)
from kernelgym.suites.kernelbench_facts import fact
from kernelgym.suites.kernelbench_small import SMALL, small_form
from kernelgym.types import Problem

DATASET = "ScalingIntelligence/KernelBench"
ROOT_VARIABLE = "KERNELBENCH_ROOT"

REPRESENTATIVE: Mapping[int, tuple[int, ...]] = MappingProxyType(
    {
        1: (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87),
        2: (1, 2, 8, 18, 23, 28, 33, 43),
        3: (1, 5, 8, 11, 20, 21, 33, 38, 43),
    }
)
"""Numbers of the problems in KernelBench's representative subset, by level; level 4 has none."""

TEST_FAMILIES = frozenset(
    {
        # Level 1: whatever folds a window, an axis or a group (20 of 100).
        *("norm", "pooling", "reduction"),
        # Level 2: chains headed by a transposed 3-D convolution (19 of 100). Its heads are only
        # matmuls and convolutions, so some kin of any held-out family must stay in training.
        "fused_convtranspose3d",
        # Level 3: recurrent networks (10 of 50).
        "rnn",
        # Level 4: the two architectures with no near relation among the rest (5 of 20).
        *("lm_bart", "lm_reformer"),
    }
)
"""Operator families of the ``test`` split; every other known family is ``train``."""

SIZES = ("full", "small")
"""Names of the sizes in which the suite has its problems."""

_LEVELS = (1, 2, 3, 4)
_FILE_NAME = re.compile(r"(\d+)_.*\.py")


class KernelBenchSuite:
    """The 270 problems of KernelBench's levels 1 to 4; see the module's docstring.

    Args:
        root: A checkout; None takes ``KERNELBENCH_ROOT``, and without it the hub's dataset.
        sizes: ``full``, or ``small`` for the small forms of the problems that have one.

    Raises:
        UnknownName: If there are no such sizes.
        ProblemError: If the root is not a checkout.
    """

    name = "KernelBench"
    splits = ("train", "test", "representative")

    def __init__(self, root: str | None = None, sizes: str = "full") -> None:
        if sizes not in SIZES:
            raise UnknownName("sizes", sizes, SIZES)
        self.sizes = sizes
        chosen = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
        self._folder = (
            None if chosen is None else _dataset_folder(Path(chosen).expanduser(), root is None)
        )
        self._loaded: dict[int, tuple[Problem, ...]] = {}
        self._unreachable: str | None = None  # why, once the hub was asked; empty if it answers
        self._lock = threading.Lock()

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels that exist, ascending; level 4 has no small forms."""
        return _LEVELS if self.sizes == "full" else _LEVELS[:3]

    def problems(
        self,
        level: int | None = None,
        ids: Ids | None = None,
        split: str | None = None,
    ) -> tuple[Problem, ...]:
        """See `kernelgym.suites.base.Suite.problems`."""
        hint = "Level 4 has no small forms." if level == 4 and self.sizes == "small" else ""
        check_choice("level of KernelBench", level, self.levels, hint)
        check_choice("split of KernelBench", split, self.splits)
        levels = self.levels if level is None else (level,)
        chosen = tuple(problem for number in levels for problem in self._level(number))
        if self.sizes == "small":
            forms = tuple(form for problem in chosen if (form := _small_form(problem)) is not None)
            chosen = _chosen_forms(chosen, forms, ids)
        elif ids is not None:
            chosen = select_ids(chosen, ids)
        if split is not None:
            chosen = tuple(problem for problem in chosen if split in split_of(problem))
        return non_empty(
            chosen,
            self.name,
            level=level,
            ids=ids,
            split=split,
            sizes="small" if self.sizes == "small" else "",
        )

    def get(self, problem_id: str) -> Problem:
        """See `kernelgym.suites.base.Suite.get`; reads only that problem's level.

        An id that ends in ``@small`` gives the small form. A suite of small forms returns nothing
        else, so that none of its callers gets a problem in full size by mistake.

        Raises:
            UnknownName: If there is no such problem.
            ProblemError: If the problem has no small form.
        """
        match = re.fullmatch(rf"({self.name}/L([1-4])/\d+)({SMALL})?", str(problem_id))
        if not match:
            examples = [f"{self.name}/L{level}/1" for level in self.levels]
            raise UnknownName(
                "problem",
                problem_id,
                examples,
                f"Ids read {self.name}/L<level>/<number>, or end in {SMALL} for the small form.",
            )
        found = find_problem(self._level(int(match[2])), match[1])
        if match[3]:
            return small_form(found)
        if self.sizes == "small":
            raise UnknownName(
                "problem with small sizes",
                problem_id,
                [f"{problem_id}{SMALL}"],
                f"{problem_id} is the problem in full size; leave sizes='small' out to get it.",
            )
        return found

    def _level(self, level: int) -> tuple[Problem, ...]:
        with self._lock:
            if level not in self._loaded:
                rows = self._rows_from_hub(level) if self._folder is None else self._files(level)
                rows.sort()
                for (number, name, _), (other, second, _) in itertools.pairwise(rows):
                    if number == other:
                        raise ProblemError(
                            f"level {level} holds two problems {number}: {name} and {second}; "
                            "remove one of them"
                        )
                self._loaded[level] = tuple(_problem(level, *row) for row in rows)
            return self._loaded[level]

    def _files(self, level: int) -> list[tuple[int, str, str]]:
        assert self._folder is not None
        folder = self._folder / f"level{level}"
        rows = [
            (int(match[1]), path.stem, read_source(path))
            for path in sorted(folder.glob("*.py"))
            if (match := _FILE_NAME.fullmatch(path.name))
        ]
        if not rows:
            raise ProblemError(
                f"{folder} holds no KernelBench problem (files such as 1_Name.py); "
                f"is the checkout named by {ROOT_VARIABLE} complete?"
            )
        return rows

    def _rows_from_hub(self, level: int) -> list[tuple[int, str, str]]:
        try:
            import datasets
        except ImportError as error:
            raise _nothing_available(f"the package `datasets` is missing: {error}") from error
        if self._unreachable is None:
            self._unreachable = ask_hub(DATASET, "dataset")
        quiet = offline() if self._unreachable else contextlib.nullcontext()
        try:
            with quiet:
                rows = datasets.load_dataset(DATASET, split=f"level_{level}")
            found = [(int(r["problem_id"]), str(r["name"]), str(r["code"])) for r in rows]
        # The hub's client, the file system and the reader raise errors of a dozen unrelated
        # classes; all of them mean that the dataset cannot be had.
        except Exception as error:
            raise _nothing_available(f"{type(error).__name__}: {error}") from error
        for number, name, code in found:
            check_source(code, f"{DATASET}, level {level}, problem {number} ({name})")
        return found


def _small_form(problem: Problem) -> Problem | None:
    """Return the small form of a problem; None if it has none."""
    try:
        return small_form(problem)
    except ProblemError:
        return None


def _chosen_forms(
    problems: tuple[Problem, ...], forms: tuple[Problem, ...], ids: Ids | None
) -> tuple[Problem, ...]:
    """Return the small forms of KernelBench's problems that ids pick.

    Raises:
        UnknownName: If an id picks no problem.
        ProblemError: If it picks only problems without a small form.
    """
    if ids is None:
        return forms
    try:
        return select_ids(forms, ids)
    except UnknownName as error:
        for problem in select_ids(problems, str(error.given)):
            small_form(problem)  # says why it has none
        raise error from None


def split_of(problem: Problem) -> tuple[str, ...]:
    """Return the splits a KernelBench problem belongs to.

    A problem without a known family (a checkout with problems of its own) goes to ``test`` if
    the SHA-256 of its name says so, one time in five.
    """
    if problem.family:
        side = "test" if problem.family in TEST_FAMILIES else "train"
    else:
        draw = int.from_bytes(hashlib.sha256(problem.name.encode()).digest()[:4], "big")
        side = "test" if draw % 5 == 0 else "train"
    chosen = problem_number(problem) in REPRESENTATIVE.get(problem.level, ())
    return (side, "representative") if chosen else (side,)


def _problem(level: int, number: int, name: str, source: str) -> Problem:
    problem_id = f"KernelBench/L{level}/{number}"
    name = name.removesuffix(".py")
    known = fact(problem_id, name)
    family = known.family if known else ""
    return Problem(problem_id, KernelBenchSuite.name, level, name, source, family)


def _dataset_folder(root: Path, from_environment: bool) -> Path:
    for folder in (root, root / "KernelBench"):
        if any((folder / f"level{level}").is_dir() for level in _LEVELS):
            return folder
    source = f"{ROOT_VARIABLE}={str(root)!r}" if from_environment else f"root {str(root)!r}"
    raise ProblemError(
        f"{source} is not a KernelBench checkout: neither it nor its folder KernelBench/ holds "
        "level1; name the repository's root or its dataset folder"
    )


def _nothing_available(reason: str) -> ProblemError:
    return ProblemError(
        f"KernelBench's problems are not available ({reason[:300]}). Either set {ROOT_VARIABLE} "
        f"to a checkout of the KernelBench repository, or make the Hugging Face dataset {DATASET} "
        "reachable (or cached). The suite Synthetic is embedded and needs neither: "
        "Synthetic-L1-MultiTurn."
    )
