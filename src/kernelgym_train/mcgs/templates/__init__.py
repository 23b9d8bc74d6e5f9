"""Texts that a search writes: prompts, traces, reports, proposed changes, and texts of kernels.

`filled` fills a template of this folder, or of a language's moves. Values of ``*.html.j2`` are
escaped. In ``*.md.j2`` the filters ``md`` and ``table`` escape what kernels, compilers, models and
users wrote, and `fence` gives the fence that a text cannot end.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_FOLDERS = ("templates", "moves/cpp", "moves/cuda", "moves/triton")
_MARKUP = frozenset("\\|`*_<>&[]#")


def filled(template: str, **values: object) -> str:
    """Return a template's text with these values."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=ChoiceLoader([PackageLoader("kernelgym_train.mcgs", folder) for folder in _FOLDERS]),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"md": escaped, "table": markdown_table, "fence": fence_of}
    return found


def escaped(text: str) -> str:
    """Return a text as one line of Markdown without markup and control characters."""
    line = " ".join(text.split())
    line = "".join(letter for letter in line if letter.isprintable())
    return "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in line)


def fence_of(text: str) -> str:
    """Return backticks for a fenced block of Markdown, one more than the text has in a row."""
    return "`" * (1 + max([2, *map(len, re.findall("`+", text))]))


def markdown_table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """Return a Markdown table, whose cells are escaped and whose head is not."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in rows)])
