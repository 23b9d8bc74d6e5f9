"""Settings that are given as a mapping of a dataclass's fields, as files hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from kernelgym.errors import UnknownName

__all__ = ["from_fields"]

Made = TypeVar("Made")


def from_fields(kind: type[Made], what: str, given: Mapping[str, Any]) -> Made:
    """Return a dataclass made of a mapping of its fields.

    Args:
        kind: The dataclass.
        what: What its fields are called in an error, such as ``field of a context``.
        given: Values by field.

    Raises:
        UnknownName: If it has no such field.
        UsageError: If a value is refused by the dataclass.
    """
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise UnknownName(what, name, known)
    return kind(**given)
