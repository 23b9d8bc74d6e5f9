"""Texts of models made harmless and visible: escaped, bounded, without hidden characters.

Contract: pure. What `escaped` returns holds no markup, no control character but newline and tab,
and no character that changes the direction of text or hides; these are shown as their escapes. It
can always be written as UTF-8.
"""

from __future__ import annotations

import re
from html import escape

__all__ = ["MOST_CHARACTERS", "cut", "escaped", "facts_table", "plain", "table"]

MOST_CHARACTERS = 60_000
"""Most characters of one text that a page shows."""

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def plain(text: str) -> str:
    """Return a text with hidden characters shown; not escaped for HTML."""
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def escaped(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return a text for a page, cut after `most` characters."""
    return escape(plain(cut(str(text), most)))


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text's beginning, with a line for what is left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters are not shown]"


def table(
    columns: list[str], rows: list[list[str]], *, caption: str = "", kind: str = "sortable"
) -> str:
    """Return a table whose cells are HTML already; empty without rows."""
    if not rows:
        return ""
    told = f"<caption>{escaped(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return (
        f'<div class="scroll"><table class="{kind}">{told}<thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def facts_table(facts: dict[str, object]) -> str:
    """Return names and values in two columns, empty ones left out."""
    rows = (
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value)}</td></tr>'
        for name, value in facts.items()
        if value not in (None, "")
    )
    return f'<div class="scroll"><table class="facts"><tbody>{"".join(rows)}</tbody></table></div>'


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
