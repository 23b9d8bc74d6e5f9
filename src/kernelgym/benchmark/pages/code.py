"""Sources of kernels as a page shows them: highlighted, and as a diff.

Contract: pure. Pygments highlights, where it is installed; other sources are escaped only. Texts
beyond `MOST_CHARACTERS` are cut, and a line says so.
"""

from __future__ import annotations

import difflib
import functools
from typing import Any

from kernelgym.benchmark.pages.text import MOST_CHARACTERS, cut, escaped, plain

_MOST_HIGHLIGHTED = 40_000
_MOST_COMPARED = 3000  # lines; difflib's time grows with their square


def code(source: str) -> str:
    """Return a kernel's source as HTML, highlighted if short enough."""
    if len(source) > _MOST_HIGHLIGHTED or (tools := _tools()) is None:
        return f"<pre>{escaped(source)}</pre>"
    lexer, formatter, highlight = tools
    return f'<pre class="hl">{highlight(plain(source), lexer, formatter)}</pre>'


def changes(before: str, after: str) -> str:
    """Return a diff of two kernels as HTML; empty without changes."""
    if before == after:
        return ""
    old, new = cut(before).split("\n"), cut(after).split("\n")
    if max(len(old), len(new)) > _MOST_COMPARED:
        return f"<p>{len(old)} lines before, {len(new)} after: too many to compare here.</p>"
    parts = []
    for line in list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]:
        text = escaped(line, MOST_CHARACTERS)
        kind = {"+": "ins", "-": "del"}.get(line[:1])
        parts.append(f"<{kind}>{text}</{kind}>" if kind else text + "\n")
    return f"<pre>{''.join(parts)}</pre>"


@functools.cache
def _tools() -> tuple[Any, Any, Any] | None:
    try:
        from pygments import highlight
        from pygments.formatters.html import HtmlFormatter
        from pygments.lexers.python import PythonLexer
    except ImportError:
        return None
    return PythonLexer(ensurenl=False, stripnl=False), HtmlFormatter(nowrap=True), highlight
