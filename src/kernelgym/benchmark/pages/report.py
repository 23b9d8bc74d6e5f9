"""Whole reports: one file, or a folder with a page per problem.

Contract: `one_file` holds front, wall, tables, curves and every problem, with the texts of its
shown samples; `write_folder` gives every problem a page with all samples. Both are written whole or
not at all, file by file, and hold only relative links. Every value in a page is escaped, bounded
and without hidden characters; only what `Markup` marks is HTML.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from jinja2 import Environment
from markupsafe import Markup

from kernelgym.benchmark.comparison import RunComparison
from kernelgym.benchmark.pages import (
    charts,
    code,
    compare,
    failures,
    front,
    problem,
    speed,
    text,
    view,
    wall,
)
from kernelgym.benchmark.pages.rendering import environment
from kernelgym.benchmark.pages.style import document
from kernelgym.benchmark.pages.view import RunView, anchor
from kernelgym.errors import UsageError
from kernelgym.whole_file import write_whole

_MOST_ROWS = 200
_DATA: tuple[ModuleType, ...] = (
    *(charts, code, compare, failures, front, problem, speed, text, view, wall),
)
"""Modules whose functions the templates call by name."""
_SECTIONS = {
    "front": "Front",
    "wall": "The wall",
    "speed": "Speed",
    "wrong": "What went wrong",
    "integrity": "Integrity",
    "cost": "Cost",
    "compare": "Compare",
    "claims": "Their verdict and ours",
    "problems": "Problems",
    "method": "Method",
}
"""Ids of the sections in ``report.html``, with their names."""


def one_file(views: Sequence[RunView], comparisons: Sequence[RunComparison] = ()) -> str:
    """Return a report as one page."""
    return _report(views, comparisons, lambda name: f"#{anchor(name)}", _identities(views))


def write_folder(
    folder: Path, views: Sequence[RunView], comparisons: Sequence[RunComparison] = ()
) -> list[Path]:
    """Write a report as a folder; return its files, ``index.html`` first.

    Raises:
        UsageError: If it cannot be written.
    """
    files = [folder / "index.html"]
    link = _page_of
    write_file(files[0], _report(views, comparisons, link, []))
    template = _environment().get_template("problem.html")
    for identity in _identities(views):
        body = [
            '<p><a href="../index.html">The report</a></p>',
            f"<h1>{text.escaped(identity)}</h1>",
            template.render(views=views, identity=identity, whole=True),
        ]
        files.append(folder / _page_of(identity))
        write_file(files[-1], document(identity, body))
    return files


def write_file(path: Path, text: str) -> None:
    """Write a page, whole or not at all.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _page_of(identity: str) -> str:
    return f"problems/{anchor(identity)}.html"


def _identities(views: Sequence[RunView]) -> list[str]:
    return list(dict.fromkeys(name for view in views for name in view.groups))


def _report(
    views: Sequence[RunView],
    comparisons: Sequence[RunComparison],
    link: Callable[[str], str],
    identities: Sequence[str],
) -> str:
    """Return the page of all runs, with the problems in it that are named."""
    title = ", ".join(view.name for view in views)
    body = (
        _environment()
        .get_template("report.html")
        .render(
            title=title,
            views=views,
            comparisons=comparisons,
            link=link,
            identities=identities,
            table_names=list(dict.fromkeys(name for view in views for name in view.tables)),
            labels=list(dict.fromkeys(label for view in views for label in view.run.rulesets)),
        )
    )
    navigation = [
        (f"#{name}", told) for name, told in _SECTIONS.items() if f'<section id="{name}">' in body
    ]
    return document(f"kernelgym report: {title}", [body], navigation=navigation)


@functools.cache
def _environment() -> Environment:
    """Return the templates' environment, with the functions and values that they name."""
    made = environment()
    for module in _DATA:
        for name, each in inspect.getmembers(module, callable):
            if each.__module__ == module.__name__:  # not what it imports
                made.globals[name] = each
    made.globals.update(cell=view.state_cell, most_rows=_MOST_ROWS, states=view.STATES)
    made.globals["cost_columns"] = front.COST_COLUMNS
    made.filters["code"] = lambda source: Markup(code.code(source))
    return made
