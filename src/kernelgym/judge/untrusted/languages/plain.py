"""Beside a kernel of a language that needs no module of its own: nothing to import or replace.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def import_packages() -> None:
    """Import nothing."""


def environment(scratch: str) -> dict[str, str]:
    """Return no variables."""
    return {}


def count_launches(launches: Any) -> None:
    """Wrap nothing."""


def describe_error(error: BaseException, source_file: str) -> dict[str, Any]:
    """Return nothing that is better than the usual description."""
    return {}


def begin(request: Callable[[dict[str, Any]], dict[str, Any]], target: str) -> Callable[[], int]:
    """Return a function that tells of no launch: none is compiled here."""
    return lambda: 0
