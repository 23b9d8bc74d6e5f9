"""The environment of the pages' templates."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernelgym.benchmark.pages import text


def environment() -> Environment:
    """Return a new environment: every value is shown by `_shown`, then escaped."""
    made = Environment(
        loader=PackageLoader("kernelgym.benchmark.pages"),
        autoescape=True,
        finalize=_shown,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["cut"] = text.cut
    return made


def _shown(value: Any) -> Any:
    """Return a value as a page shows it: bounded, and with hidden characters as escapes."""
    return value if isinstance(value, Markup) else text.plain(text.cut(str(value)))
