"""`normal_cpp`: C++ text without comments and layout, to compare two texts.

Contract: two texts with the same result mean the same to a compiler. Needs no parser. Pure.

Names are kept: texts that differ in names have different results.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<raw>R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
  | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
  | (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|(?!//)[^\n])*)
  | (?P<space>\s+)
  | (?P<word>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*|[^\W\d]\w*)
  | (?P<sign>[-+*/%&|^=<>!:.]+?(?=//|/\*)|[-+*/%&|^=<>!:.]+|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def normal_cpp(text: str) -> str:
    """Return the tokens of a C++ text, separated by blanks.

    A directive has its own line.
    """
    parts: list[str] = []
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "directive":
            parts.append("\n" + " ".join(found[0].replace("\\\n", " ").split()) + "\n")
        elif found.lastgroup not in ("comment", "space"):
            parts.append(found[0])
    return " ".join(parts).strip()
