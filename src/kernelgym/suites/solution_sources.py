"""`joined`: the sources of a flashinfer-bench solution as one text.

Contract: the texts are read and never run. C++ and CUDA files are put one after the other, the
entry's last; ``#include "FILE"`` of a header among the sources becomes the header's text, once. The
module that pybind11 would make is left out, since the judge's build makes its own. Of Python, a
``from MODULE import NAMES`` of another source is left out, and that source stands before it. What
has another form is a `UsageError`. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from kernelgym.errors import UsageError

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*$", re.MULTILINE)
_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\([^()]*\)\s*\{")
_UNITS = (".cu", ".cpp", ".cc", ".cxx", ".c")


def joined(sources: Mapping[str, str], entry: str) -> str:
    """Return one text of all sources.

    Args:
        sources: Texts by path.
        entry: Path of the file that holds the entry.

    Raises:
        UsageError: If the entry's file is missing, or a source cannot be joined with the others.
    """
    if entry not in sources:
        listed = ", ".join(map(repr, sources)) or "missing"
        raise UsageError(f"the solution's sources are {listed:.300}; {entry!r} is not among them")
    if entry.endswith(".py"):
        return _python(sources, entry)
    units = [path for path in sources if path.endswith(_UNITS) and path != entry]
    seen: set[str] = set()
    return "\n".join(_expanded(sources, path, seen) for path in (*units, entry))


def _expanded(sources: Mapping[str, str], path: str, seen: set[str]) -> str:
    """Return a C++ text with the headers among the sources in place of their includes."""
    seen.add(path)

    def included(match: re.Match[str]) -> str:
        near = path.rpartition("/")[0]
        named = (f"{near}/{match[1]}" if near else match[1], match[1])
        found = next((name for name in named if name in sources), None)
        if found is None:
            return match[0]  # a header of the system or of torch
        if found.endswith(_UNITS):
            raise UsageError(f"{path!r} includes {found!r}, which is compiled by itself")
        return "" if found in seen else _expanded(sources, found, seen)

    return _INCLUDE.sub(included, _ONCE.sub("", _without_module(sources[path], path)))


def _without_module(text: str, path: str) -> str:
    """Return a C++ text without the module that pybind11 makes."""
    found = _PYBIND.search(text)
    if found is None:
        return text
    depth, at = 1, found.end()
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    if depth:
        raise UsageError(f"the PYBIND11_MODULE of {path!r} has no end")
    return text[: found.start()] + text[at:]


def _python(sources: Mapping[str, str], entry: str) -> str:
    modules = {path.removesuffix(".py").replace("/", "."): path for path in sources}
    parts: list[str] = []
    done: set[str] = set()

    def add(path: str, under: tuple[str, ...]) -> None:
        if path in under:
            raise UsageError(f"{path!r} and {under[-1]!r} import each other; give one source")
        if path in done:
            return
        done.add(path)
        try:
            tree = ast.parse(sources[path])
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"{path!r} is not valid Python: {error}") from None
        lines = sources[path].split("\n")
        for node in tree.body:
            other = _imported(node, modules)
            if other is not None:
                add(other, (*under, path))
                for number in range(node.lineno - 1, (node.end_lineno or node.lineno)):
                    lines[number] = ""
        parts.append("\n".join(lines).strip("\n"))

    add(entry, ())
    return "\n\n\n".join(parts) + "\n"


def _imported(node: ast.stmt, modules: Mapping[str, str]) -> str | None:
    """Return the source that an import takes names from; None if it is none of the sources."""
    if isinstance(node, ast.Import):
        for each in node.names:
            if each.name in modules:
                raise UsageError(
                    f"'import {each.name}' of another source cannot be joined; write "
                    f"'from {each.name} import NAMES'"
                )
    if not isinstance(node, ast.ImportFrom) or (node.module or "") not in modules:
        return None
    if any(each.asname or each.name == "*" for each in node.names):
        raise UsageError(
            f"'from {node.module} import' of another source cannot be joined with * or as; name "
            "what it imports"
        )
    return modules[node.module or ""]
