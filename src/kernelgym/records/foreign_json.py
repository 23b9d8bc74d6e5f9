"""Reading JSON files that other programs wrote.

Contract: Python's ``json`` writes NaN and infinities, which are no JSON and which no file of
kernelgym may hold. `read_foreign_json` returns None in the place of each, with a sentence that
names the file and the entry, so that the caller can say what counts as missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError

_MOST_NAMED = 5


def read_foreign_json(path: Path, what: str, remedy: str) -> tuple[Any, tuple[str, ...]]:
    """Return the data of a file, and sentences on its numbers that are not finite.

    Args:
        path: The file.
        what: Noun for the file's content in messages, such as ``results``.
        remedy: Clause that says what to do about a file that cannot be read.

    Raises:
        UsageError: If the file cannot be read, or is not JSON.
    """
    try:
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(
            f"cannot read the {what} in {str(path)!r}: {error.strerror}; {remedy}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}); {remedy}") from None
    places = list(_not_finite(data, ""))
    if not places:
        return data, ()
    told = [
        f"{path.name}: {place} is {value}; it is read as missing"
        for place, value in places[:_MOST_NAMED]
    ]
    if len(places) > _MOST_NAMED:
        told.append(
            f"{path.name}: {len(places) - _MOST_NAMED} more numbers are not finite; they are read "
            "as missing"
        )
    return _finite(data), tuple(told)


def _not_finite(data: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the value of each number that is not finite, as JSON spells it."""
    if isinstance(data, float) and not math.isfinite(data):
        yield place or "the number", json.dumps(data)
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _not_finite(value, f"{place}.{name}" if place else f"entry {name}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _not_finite(value, f"{place}[{number}]" if place else f"entry {number}")


def _finite(data: Any) -> Any:
    """Return the data with None in the place of numbers that are not finite."""
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
