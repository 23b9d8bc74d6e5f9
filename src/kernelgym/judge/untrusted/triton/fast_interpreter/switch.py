"""Installs the fast interpreter: replacements that make Triton's interpreter faster.

An interpreted launch spends most of its time around NumPy: it builds types and shapes again for
every intermediate value, and searches the whole language for builtins to patch. The replacements
cache results, or return early if there is nothing to do; they call Triton's own function for any
unusual case.

A function is replaced only if its source text, and the texts of all functions that the replacement
relies on, have the hashes known here. Under another version of Triton it stays unchanged.

Verdicts are the same either way. With ``KERNELGYM_PLAIN_INTERPRETER=1`` in the environment of the
process that starts the judge, zygotes leave Triton's interpreter unchanged. Use it to find out
whether this folder causes a strange verdict, or how much time it saves. A candidate's own
environment lacks the variable.

The replacements are in `values.py` and `launches.py`. Loaded by path in the zygote: standard
library and triton only. Like `bounds_check.py`, no security boundary.

Benchmark: ``python -m benchmarks.judge.speed_paths --part interpreter``, results in
``benchmarks/results/speed_paths.json``. With Triton's interpreter as it is, an interpreted verdict
takes 1.7 times as long.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from types import ModuleType
from typing import Any


def is_on() -> bool:
    """Return False if the environment asks for Triton's unchanged interpreter."""
    return os.environ.get("KERNELGYM_PLAIN_INTERPRETER") != "1"


def install(*parts: ModuleType) -> list[str]:
    """Replace functions of Triton's interpreter; return the names left unchanged.

    Args:
        parts: Modules with ``TEXTS`` (by name, the start of the SHA-256 of the known source text)
            and ``MADE`` (by name, the function that makes a replacement from the original, and the
            names of all texts that the replacement was written for).
    """
    left = []
    texts = {name: _text_of(name) for part in parts for name in part.TEXTS}  # before any change
    for part in parts:
        for name, (make, relies_on) in part.MADE.items():
            if all(texts[each] == part.TEXTS[each] for each in relies_on):
                owner, attribute = _owner(name)
                setattr(owner, attribute, make(getattr(owner, attribute)))
            else:
                left.append(name)
    return left


def _owner(name: str) -> tuple[Any, str]:
    """Return the module or class that a dotted name lies in, and the attribute's name."""
    from triton.language import core, semantic
    from triton.runtime import interpreter, jit

    *classes, attribute = name.split(".")
    places = (interpreter, semantic, core, jit)
    owner = next((at for at in places if hasattr(at, (*classes, attribute)[0])), interpreter)
    for each in classes:
        owner = getattr(owner, each, None)
    return owner, attribute


def _text_of(name: str) -> str:
    """Return the start of the SHA-256 of a function's source; empty if there is no source."""
    owner, attribute = _owner(name)
    found: Any = getattr(owner, attribute, None)
    try:
        text = inspect.getsource(found)
    except (OSError, TypeError):
        return ""
    if getattr(found, "__qualname__", "") != name:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
