"""What a candidate's process says of an error of the kernel's.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

import sys

__all__ = ["describe_error", "flush_output"]


def describe_error(error: BaseException, source_file: str) -> dict[str, str]:
    """Say what was raised and where in the kernel's own file, without traceback noise."""
    places = []
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None and len(chain) < 8:
        chain.append(chain[-1].__cause__)
    for link in chain:
        trace = link.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == source_file:
                places.append(f"line {trace.tb_lineno}, in {trace.tb_frame.f_code.co_name}")
            trace = trace.tb_next
    # Triton's own error holds the line that it means; what caused it does not.
    triton = (link for link in reversed(chain) if type(link).__name__ == "CompilationError")
    root = next(triton, chain[-1])
    if isinstance(root, SyntaxError) and root.lineno:
        places.append(f"line {root.lineno}")
    try:
        text = str(root)
    except BaseException:
        text = "(its message cannot be printed)"
    return {
        "type": type(root).__name__[:200],
        "text": text[:8000],
        "where": "; ".join(dict.fromkeys(places[-4:])),
    }


def flush_output() -> None:
    """Flush what the candidate printed, so that it reaches the pipes before a reply does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            continue
