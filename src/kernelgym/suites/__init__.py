"""Suites of problems: `suite` finds one by name, `get_problem` one problem by id or file.

Known names are ``KernelBench`` and ``Synthetic``; the path of a folder is a suite too, and so is a
kernel spec (`kernelgym.suites.spec`), whose problems are its shapes. Importing this package loads
no suite.

The room may import the nouns and `languages`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kernelgym.errors import UnknownName, UsageError
from kernelgym.suites.base import Ids, Suite
from kernelgym.suites.kernelbench_small import SMALL
from kernelgym.types import Problem

__all__ = ["SUITES", "Ids", "Suite", "check_full_sizes", "get_problem", "suite"]

SUITES: Mapping[str, str] = MappingProxyType(
    {
        "KernelBench": "kernelgym.suites.kernelbench:KernelBenchSuite",
        "Synthetic": "kernelgym.suites.synthetic:SyntheticSuite",
    }
)
"""Module and class of each named suite, as ``module:class``."""


def suite(name: str | Path | Suite, /, **options: object) -> Suite:
    """Return a suite by name, or the suite of a folder.

    Args:
        name: ``KernelBench``, ``Synthetic``, the path of a folder or of a kernel spec (``.json``),
            or a suite (returned as is).
        **options: Passed on to the suite, such as ``root`` (KernelBench) or ``name`` (a folder).
            ``sizes="full"`` fits any suite; ``sizes="small"`` only KernelBench.

    Raises:
        UnknownName: If `name` is neither a known suite nor a folder.
        UsageError: If the suite does not take an option.
    """
    if isinstance(name, Suite):
        there = getattr(name, "sizes", "full")
        if (sizes := options.get("sizes", there)) != there:
            raise UsageError(
                f"sizes={sizes!r} does not fit the suite that was given, "
                f"{name.name!r}: make it with these sizes, or name it instead"
            )
        return name
    name = str(name)
    if name != "KernelBench":
        check_full_sizes(options.pop("sizes", "full"), name)
    if name in SUITES:
        module, _, attribute = SUITES[name].partition(":")
        factory: Callable[..., Suite] = getattr(importlib.import_module(module), attribute)
        arguments: tuple[object, ...] = ()
    elif name.endswith(".json"):
        from kernelgym.suites.spec_suite import SpecSuite

        factory, arguments = SpecSuite, (name,)
    elif _exists(name):
        from kernelgym.suites.directory import DirectorySuite

        factory, arguments = DirectorySuite, (name,)
    else:
        raise UnknownName(
            "suite",
            name,
            SUITES,
            "The path of a folder of problem files, or of a kernel spec (*.json), is a suite too.",
        )
    try:
        return factory(*arguments, **options)
    except TypeError as error:
        raise UsageError(f"suite {name!r} does not take these options: {error}") from None


def get_problem(id_or_path: str | Path, sizes: str = "full") -> Problem:
    """Return one problem by id (``KernelBench/L1/23``) or by the path of its file.

    Args:
        id_or_path: The id or the path. An id that ends in ``@small`` names a small form. A kernel
            spec's path may end in ``#`` and the name of a shape.
        sizes: ``small`` for the small form of the problem that the id names.

    Raises:
        UsageError: If the problem's suite has no such sizes.
        UnknownName: If the id's suite, or the problem in it, does not exist.
        ProblemError: If the file cannot be used, or the suite cannot be read.
    """
    given = str(id_or_path)
    first = given.partition("/")[0]
    if first in SUITES and not given.endswith(".py"):
        chosen = suite(first, sizes=sizes)
        small = sizes == "small" and not given.endswith(SMALL)
        return chosen.get(given + SMALL if small else given)
    check_full_sizes(sizes, given)
    if given.partition("#")[0].endswith(".json"):
        from kernelgym.suites.spec_suite import spec_problem

        return spec_problem(given)
    if given.endswith(".py") or _exists(given):
        from kernelgym.suites.directory import problem_from_file

        return problem_from_file(given)
    raise UnknownName(
        "problem",
        given,
        [f"{name}/L1/1" for name in SUITES],
        "Give an id such as KernelBench/L1/23, or the path of a problem file (*.py).",
    )


def check_full_sizes(sizes: object, given: str) -> None:
    """Check that `sizes` is ``full``, for problems that have no others.

    Raises:
        UsageError: If it is not.
    """
    if sizes == "full":
        return
    if sizes != "small":
        raise UnknownName("sizes", str(sizes), ("full", "small"))
    raise UsageError(
        f"sizes='small' was given for {given!r}, but only KernelBench has problems in small sizes; "
        "leave it out"
    )


def _exists(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False
