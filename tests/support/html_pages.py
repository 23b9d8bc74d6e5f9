"""Pages read as a browser reads them: tags that close, texts, links, and what would be loaded."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["VOID", "Page", "parsed"]

VOID = {"meta", "br", "input", "col", "hr", "img", "link", "wbr"}


class Page(HTMLParser):
    """Checks that every tag is closed by its own, and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.code = ""
        """Of scripts and style sheets."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.code += data
        else:
            self.text += data

    def ids(self) -> list[str]:
        """Return the ids of all elements."""
        return [found["id"] for _, found in self.tags if "id" in found]

    def links(self) -> list[str]:
        """Return where links lead and what would be loaded."""
        names = ("href", "src", "srcset", "action", "data", "xlink:href")
        return [found[name] for _, found in self.tags for name in names if name in found]


def parsed(page: str) -> Page:
    """Return a page that was read to its end, all of whose tags were closed."""
    reader = Page()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader
