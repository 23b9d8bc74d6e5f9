"""Templates of texts that are not HTML: modules, scripts, files of tasks."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package),
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["json"] = json.dumps
    return made


def filled(package: str, template: str, **values: object) -> str:
    """Return a template of a package's folder ``templates``, filled with values."""
    return _environment(package).get_template(template).render(values)
