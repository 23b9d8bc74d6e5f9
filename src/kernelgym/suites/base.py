"""What a suite of problems is, and the selection rules that all suites share.

A suite gives out `kernelgym.types.Problem` records. Problems are chosen by id, by number, by a
range such as ``"1-20,33"``, by level and by split; a selection that matches nothing is an error,
never an empty tuple. Sources are checked by reading their syntax tree.

Nothing here runs a problem's source or knows where any one suite keeps its problems.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from kernelgym.errors import ProblemError, UnknownName, UsageError
from kernelgym.suites.kernelbench_small import SMALL
from kernelgym.types import Problem

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
"""Names that a problem's module must define."""

Ids = Sequence[str | int] | str | int
"""Choice of problems: ids, numbers, or text such as ``"1-20,33,L2/5"``."""

_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)")
_LONGEST_RANGE = 1_000_000


@runtime_checkable
class Suite(Protocol):
    """A named collection of problems."""

    @property
    def name(self) -> str:
        """First part of every id, such as ``KernelBench``."""

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels that exist, ascending."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names that `problems` takes as `split`."""

    def problems(
        self,
        level: int | None = None,
        ids: Ids | None = None,
        split: str | None = None,
    ) -> tuple[Problem, ...]:
        """Return the problems that meet every condition given.

        Args:
            level: One level; None for all.
            ids: Ids, numbers or ranges; the result keeps their order.
            split: One of `splits`; None for all.

        Raises:
            UnknownName: If the level, an id or the split does not exist.
            ProblemError: If nothing is left, or the suite's problems cannot be read.
        """

    def get(self, problem_id: str) -> Problem:
        """Return one problem by its full id.

        Raises:
            UnknownName: If there is no such problem.
        """


def parse_ids(ids: Ids) -> tuple[str | int, ...]:
    """Return a choice of problems as a list: ids, numbers, and the numbers in ranges.

    Numbers and ranges (both ends included) become ints; anything else stays text.

    Raises:
        UsageError: If a range runs backwards, or an entry is neither text nor a whole number.
    """
    chosen: list[str | int] = []
    for part in (ids,) if isinstance(ids, str | int) else ids:
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise UsageError(
                f"a problem is chosen by id or number, got {part!r} ({type(part).__name__}); "
                "give ids, numbers or a range such as '1-20,33'"
            )
        if isinstance(part, int):
            chosen.append(part)
            continue
        for piece in filter(None, (piece.strip() for piece in part.split(","))):
            chosen.extend(_piece(piece))
    return tuple(chosen)


def _piece(piece: str) -> Iterable[str | int]:
    if piece.isdecimal():
        return (int(piece),)
    if match := _RANGE.fullmatch(piece):
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise UsageError(f"range {piece!r} runs backwards; write {high}-{low}")
        if high - low >= _LONGEST_RANGE:
            raise UsageError(f"range {piece!r} spans more than {_LONGEST_RANGE} numbers")
        return range(low, high + 1)
    return (piece,)


def problem_number(problem: Problem) -> int | None:
    """Return the number at the end of a problem's id, or None.

    The number of a small form is its problem's: 19 for ``KernelBench/L1/19@small``.
    """
    last = problem.id.rpartition("/")[2].removesuffix(SMALL)
    return int(last) if last.isdecimal() else None


def problem_keys(problem: Problem) -> frozenset[str | int]:
    """Return the texts and the number that name a problem: id, short id, name and number.

    The short id of a small form may leave ``@small`` out; its full id may not, since that is the
    id of the problem in full size.
    """
    short = problem.id.partition("/")[2]
    keys: set[str | int | None] = {problem.id, problem.name, problem_number(problem)}
    keys |= {short, short.removesuffix(SMALL)}
    return frozenset(key for key in keys if key is not None and key != "")


def select_ids(problems: Sequence[Problem], ids: Ids) -> tuple[Problem, ...]:
    """Pick problems of a suite in the order of `ids`, each once.

    An entry is a full id (``KernelBench/L1/23``), an id without its suite (``L1/23``), a name
    (``23_Softmax``) or a number, which picks that number in every level present. A number
    inside a range may be missing from the suite as long as the range picks something.

    Raises:
        UnknownName: If an entry picks nothing.
    """
    by_key: dict[str | int, list[Problem]] = {}
    for problem in problems:
        for key in problem_keys(problem):
            by_key.setdefault(key, []).append(problem)
    chosen: dict[str, Problem] = {}
    for part in (ids,) if isinstance(ids, str | int) else ids:
        for piece in part.split(",") if isinstance(part, str) else (part,):
            entries = parse_ids(piece)
            found = [problem for entry in entries for problem in by_key.get(entry, ())]
            if entries and not found:
                raise UnknownName("problem", piece, [problem.id for problem in problems])
            chosen.update((problem.id, problem) for problem in found)
    return tuple(chosen.values())


def find_problem(problems: Iterable[Problem], problem_id: str) -> Problem:
    """Return the problem with that id.

    Raises:
        UnknownName: If there is none.
    """
    table = {problem.id: problem for problem in problems}
    try:
        return table[problem_id]
    except (KeyError, TypeError):
        raise UnknownName("problem", problem_id, table) from None


def check_choice(
    what: str, given: int | str | None, known: Sequence[int | str], hint: str = ""
) -> None:
    """Check that a choice of a suite, `given`, is None or one of `known`.

    Raises:
        UnknownName: If it is not.
    """
    if given is not None and (isinstance(given, bool) or given not in known):
        raise UnknownName(what, given, [str(item) for item in known], hint)


def non_empty(problems: Iterable[Problem], suite: str, **conditions: object) -> tuple[Problem, ...]:
    """Return the problems as a tuple, after making sure that there is at least one.

    Raises:
        ProblemError: If there are none; the message lists the conditions that were set.
    """
    chosen = tuple(problems)
    if not chosen:
        given = ", ".join(f"{key}={value!r}" for key, value in conditions.items() if value)
        raise ProblemError(
            f"no problem of suite {suite!r} is left with {given or 'no condition'}; "
            "drop a condition (`kernelgym ls` shows what there is)"
        )
    return chosen


def check_source(source: str, where: str) -> None:
    """Check that a problem's source is Python and defines `REQUIRED_NAMES`, without running it.

    Args:
        source: The module's text.
        where: File or id for the error message.

    Raises:
        ProblemError: If it does not parse, or a name is missing.
    """
    try:
        tree = ast.parse(source)
    # MemoryError and RecursionError are how CPython refuses absurd nesting.
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ProblemError(f"{where} is not valid Python: {error}") from None
    defined = set(_defined_names(tree.body))
    missing = [name for name in REQUIRED_NAMES if name not in defined]
    if missing:
        raise ProblemError(
            f"{where} does not define {', '.join(missing)}; a problem is a Python module with "
            "class Model(nn.Module), get_inputs() and get_init_inputs()"
        )


def _defined_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module's statements bind, also under top-level if, try and with."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                inner = getattr(node, part, [])
                for block in inner:
                    nested = block.body if isinstance(block, ast.ExceptHandler) else [block]
                    yield from _defined_names(nested)


def read_source(path: Path) -> str:
    """Read a problem file and check it.

    Raises:
        ProblemError: If it cannot be read as UTF-8 text, or `check_source` refuses it.
    """
    try:
        source = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProblemError(f"cannot read {path}: {reason}") from None
    check_source(source, str(path))
    return source


def natural_key(text: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a sort key under which ``2_x`` comes before ``10_x``."""
    parts = filter(None, re.split(r"(\d+)", text))
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts), text
