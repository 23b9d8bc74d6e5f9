"""Texts of models made safe for HTML: escaped, bounded, without hidden characters.

Contract: pure. What `escaped` returns holds no markup, no control character but newline and tab,
and no character that changes the direction of text or hides; these are shown as their escapes. It
can always be written as UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup, escape

MOST_CHARACTERS = 60_000
"""Largest number of characters of one text that a page shows."""

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def plain(text: str) -> str:
    """Return a text with hidden characters shown; not escaped for HTML."""
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def escaped(text: object, most: int = MOST_CHARACTERS) -> Markup:
    """Return a text as HTML: escaped, without hidden characters, cut after `most` characters."""
    return escape(plain(cut(str(text), most)))


def code_text(text: str, most: int = MOST_CHARACTERS) -> Markup:
    """Return a text as HTML, set as code."""
    return Markup("<code>{}</code>").format(escaped(text, most))


def problem_link(link: Callable[[str], str], identity: str) -> Markup:
    """Return a problem's id as HTML that leads to the problem.

    Args:
        link: Function that returns the address of a problem by its id.
        identity: Id of the problem.
    """
    return Markup('<a href="{}">{}</a>').format(escaped(link(identity)), escaped(identity))


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text's beginning; a line tells how many characters are left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters are not shown]"


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
