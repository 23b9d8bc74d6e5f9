"""Edits of C++ text at nodes of its syntax tree.

Contract: places are offsets into the text's UTF-8 bytes, as tree-sitter gives them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from tree_sitter import Node


def replaced(text: str, edits: Iterable[tuple[Node, str]]) -> str:
    """Return a C++ text in which disjoint nodes are replaced by other texts."""
    data = text.encode()
    for node, new in sorted(edits, key=lambda edit: edit[0].start_byte, reverse=True):
        data = data[: node.start_byte] + new.encode() + data[node.end_byte :]
    return data.decode()


def with_lines_before(text: str, lines: Iterable[tuple[Node, str]]) -> str:
    """Return a C++ text with a line inserted before each of some nodes."""
    data = text.encode()
    for node, line in sorted(lines, key=lambda edit: edit[0].start_byte, reverse=True):
        blank = " " * node.start_point.column
        if data[: node.start_byte].rpartition(b"\n")[2].strip():
            line = f"\n{blank}{line}"  # a directive needs its own line
        data = data[: node.start_byte] + f"{line}\n{blank}".encode() + data[node.start_byte :]
    return data.decode()


def with_lines_above(text: str, lines: Iterable[tuple[Node, Sequence[str]]]) -> str:
    """Return a C++ text with lines inserted above loops and their directives.

    The text before the nodes must be unchanged since they were parsed.
    """
    data = text.encode()
    for node, above in sorted(lines, key=lambda edit: edit[0].start_byte, reverse=True):
        first = node
        while (before := first.prev_sibling) is not None and before.type == "preproc_call":
            first = before
        blank = " " * first.start_point.column
        added = "".join(f"{line}\n{blank}" for line in above)
        data = data[: first.start_byte] + added.encode() + data[first.start_byte :]
    return data.decode()


def with_text_above(text: str, node: Node, added: str) -> str:
    """Return a C++ text with another text above the outermost declaration around a node."""
    while node.parent is not None and node.parent.type != "translation_unit":
        node = node.parent
    data = text.encode()
    return (data[: node.start_byte] + added.encode() + data[node.start_byte :]).decode()


def rewritten(node: Node, rule: Callable[[Node], str | None]) -> str:
    """Return a node's text, in which a rule replaces the text of the nodes that it knows."""
    new = rule(node)
    if new is not None:
        return new
    if not node.children:
        return "" if node.text is None else node.text.decode()
    parts, at = [], node.start_byte
    whole = b"" if node.text is None else node.text
    for child in node.children:
        parts.append(whole[at - node.start_byte : child.start_byte - node.start_byte].decode())
        parts.append(rewritten(child, rule))
        at = child.end_byte
    parts.append(whole[at - node.start_byte :].decode())
    return "".join(parts)


def for_head(kind: str, name: str, lower: str, upper: str, step: int = 1) -> str:
    """Return the head of a C++ loop that counts a number up: ``for (...)``."""
    update = f"++{name}" if step == 1 else f"{name} += {step}"
    return f"for ({kind} {name} = {lower}; {name} < {upper}; {update})"


def lines_at(column: int, lines: Iterable[str]) -> str:
    """Return lines of C++ as a text that starts at a column: all but the first are indented."""
    return f"\n{' ' * column}".join(lines)


def indent_of(text: str, by: int) -> str:
    """Return a C++ text whose lines after the first are indented."""
    return re.sub(r"\n(?=[^\n])", "\n" + " " * by, text)
