"""Describes a kernel's error for the trusted side.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

import linecache
import sys
from traceback import walk_tb


def describe_error(error: BaseException, source_file: str) -> dict[str, str]:
    """Return the error's type, text and lines in the kernel's own file.

    The text of an error without one, such as a bare assertion's, is the line that raised it.
    """
    places, line = [], 0
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None and len(chain) < 8:
        chain.append(chain[-1].__cause__)
    for link in chain:
        for frame, number in walk_tb(link.__traceback__):
            if frame.f_code.co_filename == source_file:
                line = number
                places.append(f"line {line}, in {frame.f_code.co_name}")
    # Triton's CompilationError quotes the offending source line; the exception that caused it does
    # not, so prefer the former.
    triton = (link for link in reversed(chain) if type(link).__name__ == "CompilationError")
    root = next(triton, chain[-1])
    if isinstance(root, SyntaxError) and root.lineno:
        places.append(f"line {root.lineno}")
    try:
        text = str(root)
    except BaseException:
        text = "(its message cannot be printed)"
    if not text and line:
        text = linecache.getline(source_file, line).strip()
    return {
        "type": type(root).__name__[:200],
        "text": text[:8000],
        "where": "; ".join(dict.fromkeys(places[-4:])),
    }


def flush_output() -> None:
    """Flush the candidate's output, so that it precedes the reply."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            continue
