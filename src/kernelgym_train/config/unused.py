"""The refusal of settings that a backend has no use for.

Contract: pure. A setting counts as given when it differs from its default, so a configuration that
spells out every default is read by any backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelgym.errors import UsageError
from kernelgym_train.config.settings import keys_that_differ

if TYPE_CHECKING:
    from kernelgym_train.config.config import Config


def refuse_given(config: Config, backend: str, unused: Mapping[str, str]) -> None:
    """Refuse settings that differ from their default although the backend does not use them.

    Args:
        config: The configuration.
        backend: Name of the backend, for the message.
        unused: Why there is no use for it, by a setting's path or a section's name.

    Raises:
        UsageError: At the first such setting; names it, its default and what to do.
    """
    given, default = config.model_dump(), type(config)().model_dump()
    for path in keys_that_differ(default, given):
        section = path.partition(".")[0]
        if (why := unused.get(path, unused.get(section))) is not None:
            raise UsageError(
                f"{path}={_shown(_at(given, path))} is a setting that backend {backend} has no use "
                f"for: {why}; leave it {_shown(_at(default, path))}"
            )


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data[name]
    return data


def _shown(value: Any) -> str:
    """Return a value as it would be written on the command line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value) or '""'
