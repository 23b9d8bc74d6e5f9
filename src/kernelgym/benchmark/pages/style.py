"""The style sheet and script of every page, and the page itself.

Contract: a page is complete in one file. Its content security policy forbids it to load anything.
The script only adds sorting, filters and the reading of curves: all content is there without it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files

from kernelgym.benchmark.pages.text import escaped

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@functools.cache
def style_sheet() -> str:
    """Return the style sheet."""
    return files("kernelgym.benchmark.pages").joinpath("report.css").read_text("utf-8")


@functools.cache
def script() -> str:
    """Return the script."""
    return files("kernelgym.benchmark.pages").joinpath("report.js").read_text("utf-8")


def document(
    title: str,
    body: Sequence[str],
    *,
    navigation: Sequence[tuple[str, str]] = (),
    scripted: bool = True,
    kind: str = "",
) -> str:
    """Return a whole page.

    Args:
        title: Title of the page, not escaped.
        body: Parts of the body, as HTML.
        navigation: Addresses and names of the links at the top.
        scripted: Add the script.
        kind: CSS class of the body.
    """
    links = "".join(f'<a href="{escaped(to)}">{escaped(name)}</a>' for to, name in navigation)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escaped(title)}</title><style>\n{style_sheet()}</style></head>\n"
        + (f'<body class="{kind}">\n' if kind else "<body>\n")
        + (f"<nav>{links}</nav>\n" if links else "")
        + "\n".join(body)
        + (f"\n<script>\n{script()}</script>" if scripted else "")
        + "\n</body></html>\n"
    )
