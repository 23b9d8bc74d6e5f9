"""Parse a kernel's Python source, whatever it holds, without raising.

`read_python` returns a syntax tree, or an `UnreadableSource` that says why there is none; it never
raises, whatever the text (lone surrogates, NUL bytes, a megabyte of brackets). `normal_form` is
the text two kernels share if they differ only in spacing that cannot matter.

It does not judge the source: rules live in `kernelgym.answers.screening`.
"""

from __future__ import annotations

import ast
import io
import threading
import warnings
from dataclasses import dataclass
from functools import lru_cache

MAX_SOURCE_CHARS = 1_000_000
"""Largest number of characters of a source that is parsed."""

_WARNINGS_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class UnreadableSource:
    """Reason why a source has no syntax tree."""

    code: str
    """Code of the reason: ``too_large`` or ``syntax_error``."""
    message: str
    """Explanation for the model."""
    line: int = 0
    """Line of the syntax error, from 1; 0 if unknown."""


@lru_cache(maxsize=64)
def read_python(source: str) -> ast.Module | UnreadableSource:
    """Return the syntax tree of `source`, or why there is none.

    The tree is shared between callers, who must not change it.
    """
    if len(source) > MAX_SOURCE_CHARS:
        return UnreadableSource(
            "too_large", f"the source has {len(source)} characters; the limit is {MAX_SOURCE_CHARS}"
        )
    try:
        return _parse(source)
    except SyntaxError as error:
        return UnreadableSource("syntax_error", f"SyntaxError: {error.msg}", error.lineno or 0)
    except UnicodeEncodeError:
        return UnreadableSource(
            "syntax_error", "the source holds characters that are not valid Unicode"
        )
    except (MemoryError, RecursionError):
        return UnreadableSource("syntax_error", "the source is nested too deeply to be parsed")
    except ValueError as error:  # NUL bytes, on older Pythons
        return UnreadableSource("syntax_error", f"the source cannot be parsed: {error}")


def _parse(source: str) -> ast.Module:
    if "\\" not in source:
        return ast.parse(source)
    # C++ held in plain strings is full of escapes Python does not know. They are warnings, and
    # with warnings turned into errors they would make a sound kernel look broken. The filters are
    # one global list, hence the lock and hence only where a backslash makes it necessary.
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def python_lines(source: str) -> list[str]:
    """Return the lines of a Python source with their ends, as Python's parser counts them.

    `str.splitlines` also ends a line at form feeds and Unicode's line separators, which shifts
    every later line number of a syntax tree or a traceback.
    """
    return list(io.StringIO(source, newline=""))


def normal_form(source: str) -> str:
    """Return `source` without blank lines, trailing spaces and carriage returns.

    Comments stay: a line that begins with ``#`` may be a preprocessor directive in a string. So
    do spaces after a final backslash, which change what the line means.
    """
    lines = (
        line if (bare := line.rstrip()).endswith("\\") else bare
        for line in source.replace("\r\n", "\n").split("\n")
    )
    return "\n".join(line for line in lines if line)
