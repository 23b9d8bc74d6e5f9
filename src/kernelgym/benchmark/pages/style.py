"""The style sheet and script of every page, and the page itself.

Contract: a page is complete in one file. Its content security policy forbids it to load anything.
The script only adds sorting, filters and the reading of curves: all content is there without it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files

from markupsafe import Markup

from kernelgym.benchmark.pages.rendering import environment


@functools.cache
def style_sheet() -> str:
    """Return the style sheet."""
    return files("kernelgym.benchmark.pages").joinpath("report.css").read_text("utf-8")


@functools.cache
def script() -> str:
    """Return the script of the report's pages."""
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
    page = (
        environment()
        .get_template("document.html")
        .render(
            title=title,
            body=Markup("\n".join(body)),
            navigation=navigation,
            style=Markup(style_sheet()),
            script=Markup(script()) if scripted else "",
            kind=kind,
        )
    )
    return page + "\n"
