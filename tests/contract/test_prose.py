"""Prose of the code: offences against the rules in CONTRIBUTING are counted, and may only fall."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelgym

ROOT = Path(kernelgym.__file__).parents[1]
SOURCES = sorted([*(ROOT / "kernelgym").rglob("*.py"), *(ROOT / "kernelgym_train").rglob("*.py")])

SUBJECTS = re.compile(r"\b(whoever|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
STILTED = re.compile(r"\b(is|are|was|were) to be\b|\bSays? (whether|which|how|what|that)\b")
LIMITS = {"subjects": 22, "stilted": 15}
"""As counted when this was last lowered; lower it when a rewrite has brought it down."""


def prose(path: Path) -> Iterator[str]:
    """Yield a file's docstrings, attribute docstrings and comments."""
    text = path.read_text()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def count() -> dict[str, int]:
    texts = [text for path in SOURCES for text in prose(path)]
    return {
        "subjects": sum(len(SUBJECTS.findall(text)) for text in texts),
        "stilted": sum(len(STILTED.findall(text)) for text in texts),
    }


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    return count()


@pytest.mark.parametrize("rule", LIMITS)
def test_offences_have_not_grown(counted: dict[str, int], rule: str) -> None:
    assert counted[rule] <= LIMITS[rule], f"more {rule} than {LIMITS[rule]}; see CONTRIBUTING"


def test_offences_are_seen() -> None:
    assert SUBJECTS.search("Whoever waits") and STILTED.search("Say whether it is")
    assert not SUBJECTS.search("The worker waits")
