"""Triton's interpreter, computing the same in less time.

Most of what an interpreted launch takes is spent around NumPy: types and shapes built anew for
every intermediate value, conversions decided anew for every operator, the whole language looked
through for what is to be patched. Here some functions are replaced by ones that remember, or that
see first that there is nothing to do; whatever is out of the ordinary goes to Triton's own. A
function is replaced only if its text, and that of all it relies on, is what its replacement was
written for; under another version of Triton it stays as it is.

Verdicts are the same either way. With ``KERNELGYM_PLAIN_INTERPRETER=1`` in the environment of the
process that starts the judge, zygotes leave Triton's interpreter as it is: to see whether this
folder is what gives a strange verdict, and what it saves. Candidates' own environment lacks it.

The replacements are in `value_types.py`, `values.py` and `launches.py`. Loaded by path
in the zygote: standard library and triton only. No boundary, as `bounds_check.py`.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from types import ModuleType
from typing import Any

__all__ = ["install", "is_on"]


def is_on() -> bool:
    """Return False if the environment asks for Triton's interpreter as it is."""
    return os.environ.get("KERNELGYM_PLAIN_INTERPRETER") != "1"


def install(*parts: ModuleType) -> list[str]:
    """Replace functions of Triton's interpreter; return the names of those left as they are.

    Args:
        parts: Modules with ``TEXTS`` (by name, the start of the SHA-256 of the text that is known)
            and ``MADE`` (by name, what makes a replacement of the original, and the names of all
            whose texts it was written for).
    """
    left = []
    texts = {name: _text_of(name) for part in parts for name in part.TEXTS}  # before any is gone
    for part in parts:
        for name, (make, relies_on) in part.MADE.items():
            if all(texts[each] == part.TEXTS[each] for each in relies_on):
                owner, attribute = _owner(name)
                setattr(owner, attribute, make(getattr(owner, attribute)))
            else:
                left.append(name)
    return left


def _owner(name: str) -> tuple[Any, str]:
    """Return what has a function or a class as an attribute, and the attribute's name."""
    from triton.language import core, semantic
    from triton.runtime import interpreter, jit

    *classes, attribute = name.split(".")
    places = (interpreter, semantic, core, jit)
    owner = next((at for at in places if hasattr(at, (*classes, attribute)[0])), interpreter)
    for each in classes:
        owner = getattr(owner, each, None)
    return owner, attribute


def _text_of(name: str) -> str:
    """Return the start of the hash of a function's or a class's text; empty if it has none."""
    owner, attribute = _owner(name)
    found: Any = getattr(owner, attribute, None)
    try:
        text = inspect.getsource(found)
    except (OSError, TypeError):
        return ""
    if getattr(found, "__qualname__", "") != name:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
