"""The refusal of settings that a backend has no use for.

Contract: pure. A setting counts as given when it differs from its default, so a configuration that
spells out every default is read by any backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kernelgym.errors import UsageError

if TYPE_CHECKING:
    from kernelgym_train.config.config import Config

__all__ = ["refuse_given"]


def refuse_given(config: Config, backend: str, unused: Mapping[str, str]) -> None:
    """Refuse settings that differ from their default.

    Args:
        config: The configuration.
        backend: Name of the backend, for the message.
        unused: Why there is no use for it, by a setting's path or a section's name.

    Raises:
        UsageError: At the first such setting; names it, its default and what to do.
    """
    plain = type(config)()
    for path, why in _settings(plain, unused):
        given, default = _at(config, path), _at(plain, path)
        if given != default:
            raise UsageError(
                f"{path}={_shown(given)} is a setting that backend {backend} has no use for: "
                f"{why}; leave it {_shown(default)}"
            )


def _settings(plain: Config, unused: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each setting of a table, those of whole sections too."""
    for path, why in unused.items():
        found = _at(plain, path)
        if dataclasses.is_dataclass(found):
            yield from ((f"{path}.{field.name}", why) for field in dataclasses.fields(found))
        else:
            yield path, why


def _at(config: Config, path: str) -> Any:
    found: Any = config
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _shown(value: Any) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value) or '""'
