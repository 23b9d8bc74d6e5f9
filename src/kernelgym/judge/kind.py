"""What a candidate's process is forked for, and what of that its source tells."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["USUAL", "Kind", "makes_streams"]

_STREAMS = re.compile(r"\bStream\b|Stream(Create|FromPool|PerThread|Legacy)|[Gg]raph")


def makes_streams(source: str) -> bool:
    """Say whether a source may work on several streams of a CUDA device at once.

    Those that hide it have their streams take turns.
    """
    return _STREAMS.search(source) is not None


@dataclass(frozen=True, slots=True)
class Kind:
    """What a candidate is forked for."""

    exec: bool = False
    """Whether it may start programs, in a scratch folder that outlives it: for compiling ahead,
    never for a run that is judged."""
    streams: bool = False
    """Whether work on several streams of its own may run side by side on a CUDA device. A context
    for that takes three times as long to make and to end."""


USUAL = Kind()
