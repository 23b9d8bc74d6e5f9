"""Names of operators, one for all spellings, and their families.

Contract: pure functions of text, by the tables of names.toml. `operator_name` takes the name that a
program uses, as its imports resolve it (``torch.nn.functional.relu``, ``torch.nn.ReLU``, the method
``relu_``).
Names that compute nothing (``size``, ``contiguous``) give an empty string. A name that no table
holds is kept as it is, and is its own family.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\d)(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])")

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_ACRONYMS: dict[str, str] = _DATA["acronyms"]
_LOSSES: dict[str, str] = _DATA["losses"]
_SYNONYMS: dict[str, str] = _DATA["synonyms"]
_SILENT = frozenset(_DATA["silent"].split())
"""Names of functions and methods that compute nothing a kernel would have to compute."""
FACTS = frozenset(_DATA["facts"].split())
"""Names of a tensor's attributes and methods whose value is not a tensor."""
FILLS = frozenset(_DATA["fills"].split())
"""Names of methods that add their arguments to a container or a module."""
SAME = frozenset(_DATA["same"].split())
"""Names of attributes, of a tensor or of a reduction's result, whose value is a tensor."""
_FAMILY_OF: dict[str, str] = {
    name: kind for kind, names in _DATA["families"].items() for name in names.split()
}
NAMES = (_ACRONYMS, _LOSSES, _SYNONYMS, _SILENT, FACTS, SAME, _FAMILY_OF)
"""Tables that decide names and families of operators."""


@lru_cache(maxsize=4096)
def operator_name(resolved: str) -> str:
    """Return the one name of an operator for all its spellings; empty if it computes nothing.

    Args:
        resolved: Dotted name of a function or layer, or name of a method.
    """
    last = resolved.rpartition(".")[2]
    if last in _ACRONYMS:
        return _ACRONYMS[last]
    if last in _SYNONYMS:
        return _SYNONYMS[last]
    if last in _SILENT or last.startswith("__"):
        return ""
    name = last
    if name[:1].isupper():
        name = _snake(name)
    elif name.endswith("_"):
        name = name.rstrip("_")
    if name in _SILENT:
        return ""
    name = name.removeprefix("special_").removeprefix("linalg_")
    return _SYNONYMS.get(name, name)


def family(operator: str) -> str:
    """Return an operator's family, such as ``activation``; the operator itself if it has none."""
    return _FAMILY_OF.get(operator, operator)


def _snake(name: str) -> str:
    """Return a layer's name in the style of function names: ``MaxPool2d`` gives ``max_pool2d``."""
    return _LOSSES.get(name) or _WORD_START.sub("_", name).lower()
