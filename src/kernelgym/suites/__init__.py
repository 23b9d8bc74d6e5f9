"""Suites of problems: `suite` finds one by name, `get_problem` one problem by id or file.

Known names are ``KernelBench`` and ``Synthetic``; the path of a folder is a suite too. Importing
this package loads no suite.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kernelgym.errors import UnknownName, UsageError
from kernelgym.suites.base import Ids, Suite
from kernelgym.types import Problem

__all__ = ["SUITES", "Ids", "Suite", "get_problem", "suite"]

SUITES: Mapping[str, str] = MappingProxyType(
    {
        "KernelBench": "kernelgym.suites.kernelbench:KernelBenchSuite",
        "Synthetic": "kernelgym.suites.synthetic:SyntheticSuite",
    }
)
"""Entry points of the named suites."""


def suite(name: str | Path | Suite, /, **options: object) -> Suite:
    """Return a suite by name, or the suite of a folder.

    Args:
        name: ``KernelBench``, ``Synthetic``, the path of a folder, or a suite (returned as is).
        **options: Passed on to the suite, such as ``root`` (KernelBench) or ``name`` (a folder).

    Raises:
        UnknownName: If `name` is neither a known suite nor a folder.
        UsageError: If the suite does not take an option.
    """
    if isinstance(name, Suite):
        return name
    name = str(name)
    if name in SUITES:
        module, _, attribute = SUITES[name].partition(":")
        factory: Callable[..., Suite] = getattr(importlib.import_module(module), attribute)
        arguments: tuple[object, ...] = ()
    elif _exists(name):
        from kernelgym.suites.directory import DirectorySuite

        factory, arguments = DirectorySuite, (name,)
    else:
        raise UnknownName(
            "suite", name, SUITES, "The path of a folder of problem files is a suite too."
        )
    try:
        return factory(*arguments, **options)
    except TypeError as error:
        raise UsageError(f"suite {name!r} does not take these options: {error}") from None


def get_problem(id_or_path: str | Path) -> Problem:
    """Return one problem by id (``KernelBench/L1/23``) or by the path of its file.

    Raises:
        UnknownName: If the id's suite, or the problem in it, does not exist.
        ProblemError: If the file cannot be used, or the suite cannot be read.
    """
    given = str(id_or_path)
    first = given.partition("/")[0]
    if first in SUITES and not given.endswith(".py"):
        return suite(first).get(given)
    if given.endswith(".py") or _exists(given):
        from kernelgym.suites.directory import problem_from_file

        return problem_from_file(given)
    raise UnknownName(
        "problem",
        given,
        [f"{name}/L1/1" for name in SUITES],
        "Give an id such as KernelBench/L1/23, or the path of a problem file (*.py).",
    )


def _exists(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False
