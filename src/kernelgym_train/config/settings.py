"""Settings from YAML files and from ``key.path=value`` texts.

Contract: `read_yaml` reads plain data and refuses a key that a mapping has twice. Where YAML 1.1
surprises, values are read as YAML 1.2 has them: ``1e-5`` is a number, and ``off`` a text; ``yes``
and ``no`` stay true and false. A number without a fraction, such as ``20e9``, is a whole number.
`read_settings` makes settings of such data and of overrides, and refuses what does not fit with a
`UsageError` that names the key, as `kernelgym.reading` does.

Which keys exist and which values fit together is `kernelgym_train.config.config`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict

from kernelgym.errors import UsageError
from kernelgym.reading import STRICT, options, read

T = TypeVar("T")
_NUMBER = r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"


class Settings(BaseModel):
    """Base class of a section of settings; the docstring under each field is its help."""

    model_config = cast(ConfigDict, STRICT)


def _listed(given: object) -> object:
    if given is None or isinstance(given, dict):
        return given
    return tuple(given) if isinstance(given, list) else (given,)


Several = Annotated[tuple[T, ...], BeforeValidator(_listed)]
"""Type of a setting with several values; a single value is taken as a list of one."""


def read_settings(kind: type[T], data: Mapping[str, Any], overrides: Sequence[str] = ()) -> T:
    """Return settings made from a file's data and from overrides.

    Args:
        kind: Class of the settings.
        data: Settings as read from a file: sections and their keys; what is left out has its
            default.
        overrides: Texts such as ``optimiser.steps=200``; the value is read as YAML.

    Raises:
        UnknownName: If there is no such key.
        UsageError: If a value does not fit, or an override has another form.
    """
    known = {option.path: option.type for option in options(cast("Any", kind))}
    sections = {path[:end] for path in known for end, letter in enumerate(path) if letter == "."}
    merged = _filled(data, sections, "")
    for text in overrides:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not path:
            raise UsageError(f"an override is key.path=value, got {text!r}")
        # Where a text is wanted it is taken as it stands: a run may be called 1e5, or no.
        put(merged, path, value if known.get(path) == "a text" else _yaml(value, path))
    return read(kind, merged, noun="setting")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file of settings.

    Raises:
        UsageError: If it cannot be read, is not YAML, holds no mapping, or a key stands twice.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the configuration {path}: {reason}") from None
    data = _yaml(text, str(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UsageError(f"{path} holds no mapping of sections, but {type(data).__name__}")
    return data


def put(data: dict[str, Any], path: str, value: object) -> None:
    """Set one value in plain data; sections on its path are made where they are missing.

    What stands in the place of a section and is not a mapping stays; `read_settings` refuses it.
    """
    *sections, name = path.split(".")
    for section in sections:
        inner = data.get(section)
        if not isinstance(inner, Mapping | None):
            return
        data[section] = data = dict(inner or {})
    data[name] = value


def keys_that_differ(one: Any, other: Any, prefix: str = "") -> tuple[str, ...]:
    """Return the paths at which two settings, both as plain data, differ."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return () if one == other else (prefix.rstrip("."),)
    names = [*one, *(name for name in other if name not in one)]
    missing = object()
    return tuple(
        path
        for name in names
        for path in keys_that_differ(
            one.get(name, missing), other.get(name, missing), f"{prefix}{name}."
        )
    )


def _filled(data: Mapping[str, Any], sections: set[str], prefix: str) -> dict[str, Any]:
    """Return a copy of plain data in which an empty section is a mapping without keys."""
    found = {}
    for name, value in data.items():
        path = f"{prefix}{name}"
        if path in sections and isinstance(value, Mapping | None):
            value = _filled(value or {}, sections, f"{path}.")
        found[name] = value
    return found


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain data, and refuses a key that a mapping has twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep=deep)
        if len(found) < len(node.value):
            names = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            raise yaml.YAMLError(f"the key {', '.join(twice)} is given twice")
        return cast("dict[Any, Any]", found)

    def construct_yaml_float(self, node: Any) -> int | float:
        number = float(super().construct_yaml_float(node))
        return int(number) if number.is_integer() else number


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:bool"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(?i:true|false|yes|no)\Z"), list("tTfFyYnN")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"{_NUMBER}\Z"), list("-+.0123456789")
)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{where} cannot be read as YAML: {' '.join(str(error).split())}"
        ) from None
