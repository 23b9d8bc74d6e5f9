"""Find the blocks of code in a model's text: ``<KERNEL>`` blocks and fenced blocks.

Contract: a marker inside a string or a comment of a block's own Python belongs to the code and ends
nothing. The end of a block is the first closing marker outside strings and comments, if the code up
to it is a module that defines `ModelNew`; otherwise the first closing marker at all, if that makes
one. Code that is not a module ends at the former where there is one. `code_blocks` takes any text,
never raises and takes linear time: after 20 blocks that had to be given up, fences are no longer
looked for.

It does not choose among blocks: `kernelgym.answers.parsing` does.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kernelgym.answers.completeness import Completeness, completeness, is_module
from kernelgym.answers.python_source import UnreadableSource, read_python

MODEL_NEW = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
"""Line that begins the class `ModelNew`."""
MODULE_START = re.compile(r"^(?:import|from)[ \t]+[\w.]+|^class[ \t]+ModelNew\b", re.MULTILINE)
"""Line that a module often begins with."""
THINK_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
"""Tag that opens or closes thinking."""

_MOST_GIVEN_UP = 20
_NOTHING_MORE = r"[ \t]*(?:<\|\w+\|>|</s>|<end_of_turn>)?[ \t]*$"  # but a model's stop token
_FENCE = r"^[ \t]{0,12}(?P<marker>`{3,}|~{3,})"
_LITERAL = (
    r"'''[^'\\]*(?:(?:\\[\s\S]|'(?!''))[^'\\]*)*(?:'''|\\?\Z)"
    r'|"""[^"\\]*(?:(?:\\[\s\S]|"(?!""))[^"\\]*)*(?:"""|\\?\Z)'
    r"|'[^'\\\n]*(?:\\[\s\S][^'\\\n]*)*'"
    r'|"[^"\\\n]*(?:\\[\s\S][^"\\\n]*)*"'
    r"|\#[^\n]*|\\[\s\S]"
)
"""A string or a comment of Python, or an escaped character outside both."""
_OPENER = re.compile(rf"(?P<tag><KERNEL>)|{_FENCE}(?P<rest>.*)$", re.MULTILINE)
_OPENER_IN_CODE = re.compile(rf"{_LITERAL}|{_FENCE}(?P<rest>.*)$", re.MULTILINE)
_FENCE_OPENER = re.compile(rf"{_FENCE}(?P<rest>.*)$", re.MULTILINE)
_TAG = re.compile(r"<(/?)KERNEL>")
_CLOSING_TAG = re.compile(r"\s*</KERNEL>")
_ANY_TAG = re.compile(rf"</?KERNEL>|{THINK_TAG.pattern}", re.IGNORECASE)
_FENCE_END = re.compile(_FENCE + _NOTHING_MORE, re.MULTILINE)
_END = re.compile(rf"{_LITERAL}|(?P<tag></KERNEL>)|{_FENCE}{_NOTHING_MORE}", re.MULTILINE)
_PARAGRAPH = re.compile(r"<KERNEL>|\n[ \t]*\n")
_BLANK_EDGES = re.compile(r"\A(?:[ \t]*\n)+")
_NAMED_LANGUAGE = re.compile(r"\s*(?:python3?|py|triton|cuda|cpp|c\+\+|hip)[ \t]*\n", re.I)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Code between an opening and a closing marker, and its place in the text."""

    source: str
    """Text of the code, tidy."""
    start: int
    """Index of the opening marker."""
    end: int
    """Index after the closing marker."""
    code: tuple[int, int] | None
    """Indices of the code's begin and end, if it is Python without a syntax error that defines
    `ModelNew`; None otherwise."""
    tagged: bool
    """Whether ``<KERNEL>`` tags enclose the code, not only a fence."""
    closed: bool = True
    """Whether the closing marker is there."""


def code_blocks(
    text: str, start: int = 0, *, thinking: bool = False
) -> tuple[list[CodeBlock], bool]:
    """Return the blocks in order, and whether the last ``<KERNEL>`` stays open.

    Args:
        text: Any text, with Unix line ends.
        start: Index at which the search begins; a module may begin there without a marker.
        thinking: Whether the text still holds thinking, whose tags a block may then span only
            inside its module.
    """
    barrier = _ANY_TAG if thinking else _TAG
    found = list(_continued(text, start))
    position = found[-1].end if found else start
    given_up: list[CodeBlock] = []
    is_open = False
    while opener := _OPENER.search(text, position):
        position = opener.end()
        if opener["rest"] and "`" in opener["rest"]:
            continue  # inline code
        block = _tagged(text, opener) if opener["tag"] else _fenced(text, opener)
        if opener["tag"]:
            is_open = not block.closed
        begin, end = block.code or (opener.end(), opener.end())
        last = block.end - len("</KERNEL>") * (block.tagged and block.closed)
        if barrier.search(text, opener.end(), begin) or barrier.search(text, end, last):
            given_up.append(block)
            if len(given_up) < _MOST_GIVEN_UP:
                continue
            rest, is_open = _plain_tagged(text, position)
            found += rest
            break
        if block.tagged and not block.closed and not block.code:
            continue  # its fences are looked for
        found.append(block)
        position = max(position, block.end)
    answers = [block for block in found if MODEL_NEW.search(block.source)]
    if not any(completeness(block.source) > Completeness.BROKEN for block in answers):
        added = list(_bare(text, start))
        if not added and not answers:
            added = [block for block in given_up if not block.tagged]
        # Blocks inside a bare module are examples in its docstrings.
        within = (added[0].start, added[0].end) if added else (0, 0)
        found = [block for block in found if not within[0] <= block.start < within[1]]
        found = sorted([*found, *added], key=lambda block: block.start)
    return found, is_open


def _continued(text: str, start: int) -> Iterator[CodeBlock]:
    """Yield the module at the start of a text that continues a block which the prompt opened."""
    named = _NAMED_LANGUAGE.match(text, start)
    begin = named.end() if named else start
    if _FENCE_OPENER.match(tidy(text[begin : begin + 200])):
        return  # to Python, tildes are operators
    end = _end(text, begin, "")
    stop = end.start() if end else len(text)
    source = tidy(text[begin:stop])
    if is_module(source):
        tag = _CLOSING_TAG.match(text, end.end()) if end else None
        tagged = end is not None and (end["tag"] is not None or tag is not None)
        after = tag.end() if tag else end.end() if end else stop
        yield CodeBlock(source, start, after, (begin, stop), tagged)


def _bare(text: str, start: int) -> Iterator[CodeBlock]:
    """Yield the module that stands between prose without any marker."""
    first = MODULE_START.search(text, start)
    if first is None or not MODEL_NEW.search(text, start):
        return
    gaps = islice(_PARAGRAPH.finditer(text, start, first.start()), 5)
    for begin in (*(gap.end() for gap in gaps), first.start()):
        stop = len(text)
        tree = read_python(tidy(text[begin:]))
        if isinstance(tree, UnreadableSource) and tree.line > 1:
            # Prose after the code is where Python stops to read it.
            lines = _BLANK_EDGES.sub("", text[begin:]).split("\n")
            stop = len(text) - len("\n".join(lines[tree.line - 1 :]))
        if source := _module(text[begin:stop]):
            yield CodeBlock(source, begin, stop, (begin, stop), False)
            return


def _end(text: str, start: int, marker: str | None) -> re.Match[str] | None:
    """Return the first marker that closes a block of code, outside strings and comments.

    Args:
        text: The text.
        start: Index at which the code begins.
        marker: Ticks or tildes that opened a fence; None for a ``<KERNEL>`` tag, empty for either.
    """
    for found in _END.finditer(text, start):
        if found["tag"] and not marker:
            return found
        if found["marker"] and marker is not None and found["marker"].startswith(marker):
            return found
    return None


def _tagged(text: str, opener: re.Match[str]) -> CodeBlock:
    """Return the block of an opening tag; it ends with the text if nothing closes it."""
    plain = _CLOSING_TAG.search(text, opener.end())
    ends = [_end(text, opener.end(), None), plain] if plain else [None]
    return _best(text, opener, ends)


def _fenced(text: str, opener: re.Match[str]) -> CodeBlock:
    """Return the block of an opening fence; it ends with the text if nothing closes it."""
    start, marker = min(opener.end() + 1, len(text)), opener["marker"]
    plain = (end for end in _FENCE_END.finditer(text, start) if end["marker"].startswith(marker))
    return _best(text, opener, [_end(text, start, marker), next(plain, None)])


def _best(text: str, opener: re.Match[str], ends: Sequence[re.Match[str] | None]) -> CodeBlock:
    """Return the block from an opening marker to the end that makes a module, or to the first.

    Args:
        text: The text.
        opener: The opening marker.
        ends: The first closing marker outside strings and comments, and the first at all; None for
            one that is missing, which leaves the block open to the end of the text.
    """
    start, first, tagged = opener.end(), opener.start(), bool(opener["tag"])
    spans = dict.fromkeys(
        (end.start(), end.end(), True) if end else (len(text), len(text), False) for end in ends
    )
    for stop, end, closed in spans:
        if source := _module(text[start:stop]):
            return CodeBlock(source, first, end, (start, stop), tagged, closed)
    blocks = []
    for stop, end, closed in spans:
        source, code = _inner(text[start:stop])
        placed = (start + code[0], start + code[1]) if code else None
        blocks.append(CodeBlock(source, first, end, placed, tagged, closed))
        if placed:
            return blocks[-1]
    return next((block for block in blocks if "<KERNEL>" not in block.source), blocks[0])


def _module(body: str) -> str:
    """Return a block's text, tidy, if it is a module; empty for other text.

    A fence may close on the last line of the code.
    """
    source = tidy(body)
    if not is_module(source) and source.endswith("```\n"):
        source = tidy(source.rstrip("`\n"))
    return source if is_module(source) else ""


def _inner(body: str) -> tuple[str, tuple[int, int] | None]:
    """Return the best code inside a block that is not a module; its indices too if it is a module.

    The code is that of the best fenced block that defines `ModelNew`, or all of the text.
    """
    found: list[tuple[str, tuple[int, int]]] = []
    position = 0
    while opener := _opener_in_code(body, position):
        begin = min(opener.end() + 1, len(body))
        end = _end(body, begin, opener["marker"])
        stop, position = (end.start(), end.end()) if end else (len(body), len(body))
        source = _module(body[begin:stop]) or tidy(body[begin:stop])
        if MODEL_NEW.search(source):
            found.append((source, (begin, stop)))
    if not found:
        return tidy(body), None
    source, code = found[0]
    if len(found) > 1:  # completeness takes most of the time of reading an answer
        best = max(range(len(found)), key=lambda index: (completeness(found[index][0]), index))
        source, code = found[best]
    return source, code if is_module(source) else None


def _opener_in_code(body: str, position: int) -> re.Match[str] | None:
    """Return the next marker in code, outside strings, that opens a fence."""
    for found in _OPENER_IN_CODE.finditer(body, position):
        if found["marker"] and "`" not in found["rest"]:
            return found
    return None


def _plain_tagged(text: str, position: int) -> tuple[list[CodeBlock], bool]:
    """Return the blocks between tags from a position on, wherever the tags stand."""
    blocks: list[CodeBlock] = []
    opener: re.Match[str] | None = None
    for tag in _TAG.finditer(text, position):
        if not tag.group(1):
            opener = tag  # an earlier tag still open was only mentioned in prose
        elif opener is not None:
            start, stop = opener.end(), tag.start()
            source = _module(text[start:stop])
            code = (start, stop) if source else None
            source = source or _inner(text[start:stop])[0]
            blocks.append(CodeBlock(source, opener.start(), tag.end(), code, True))
            opener = None
    return blocks, opener is not None


def tidy(source: str) -> str:
    """Return `source` without blank first lines, trailing spaces and common indentation."""
    source = _BLANK_EDGES.sub("", source).rstrip()
    margin = source[: len(source) - len(source.lstrip(" \t"))]
    if margin:
        lines = source.split("\n")
        if all(line.startswith(margin) for line in lines if line.strip()):
            source = "\n".join(line.removeprefix(margin) for line in lines)
        else:
            source = textwrap.dedent(source)
    return source + "\n"
