"""A whole report: one file, or a file per problem.

Contract: `one_file` holds front, wall, tables, curves and every problem, with the texts of its
shown samples; `write_folder` gives every problem a page with all samples. Both are written whole or
not at all, file by file, and hold only relative links.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kernelgym.benchmark.comparison import Comparison
from kernelgym.benchmark.pages.compare import claimed, compared
from kernelgym.benchmark.pages.failures import integrity, wrong
from kernelgym.benchmark.pages.front import cost, front, method
from kernelgym.benchmark.pages.problem import problem_body, problem_section
from kernelgym.benchmark.pages.speed import speed
from kernelgym.benchmark.pages.style import document
from kernelgym.benchmark.pages.text import escaped
from kernelgym.benchmark.pages.view import View, anchor
from kernelgym.benchmark.pages.wall import wall
from kernelgym.errors import UsageError

__all__ = ["one_file", "write_file", "write_folder"]

Link = Callable[[str], str]


def one_file(views: Sequence[View], comparisons: Sequence[Comparison] = ()) -> str:
    """Return a report as one page."""
    sections = list(_sections(views, comparisons, lambda name: f"#{anchor(name)}"))
    problems = [problem_section(views, identity) for identity in _identities(views)]
    place = len(sections) - 1  # the method comes last
    sections.insert(place, ("problems", "Problems", problems))
    return _page(views, sections)


def write_folder(
    folder: Path, views: Sequence[View], comparisons: Sequence[Comparison] = ()
) -> list[Path]:
    """Write a report as a folder; returns its files, ``index.html`` first.

    Raises:
        UsageError: If it cannot be written.
    """
    sections = list(_sections(views, comparisons, lambda name: f"problems/{anchor(name)}.html"))
    files = [folder / "index.html"]
    write_file(files[0], _page(views, sections))
    for identity in _identities(views):
        body = [
            '<p><a href="../index.html">The report</a></p>',
            f"<h1>{escaped(identity)}</h1>",
            *problem_body(views, identity, whole=True),
        ]
        files.append(folder / "problems" / f"{anchor(identity)}.html")
        write_file(files[-1], document(identity, body))
    return files


def write_file(path: Path, text: str) -> None:
    """Write a page beside its place and move it there.

    Raises:
        UsageError: If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, "utf-8")
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _identities(views: Sequence[View]) -> list[str]:
    return list(dict.fromkeys(name for view in views for name in view.groups))


def _sections(
    views: Sequence[View], comparisons: Sequence[Comparison], link: Link
) -> Iterator[tuple[str, str, list[str]]]:
    yield "front", "Front", front(views)
    yield "wall", "The wall", wall(views, link)
    yield "speed", "Speed", speed(views, link)
    yield "wrong", "What went wrong", wrong(views, link)
    yield "integrity", "Integrity", integrity(views, link)
    yield "cost", "Cost", cost(views)
    if comparisons:
        yield "compare", "Compare", compared(views, comparisons, link)
    if any(view.run.claims for view in views):
        yield "claims", "Their verdict and ours", claimed(views, link)
    yield "method", "Method", method(views)


def _page(views: Sequence[View], sections: Sequence[tuple[str, str, list[str]]]) -> str:
    body = []
    for identity, title, parts in sections:
        head = "" if identity == "front" else f"<h2>{escaped(title)}</h2>\n"
        body.append(f'<section id="{identity}">{head}{chr(10).join(parts)}</section>')
    title = f"kernelgym report: {', '.join(view.name for view in views)}"
    return document(
        title, body, navigation=[(f"#{identity}", name) for identity, name, _ in sections]
    )
