"""Settings: dataclasses from YAML and ``key.path=value``, and back to plain data.

Contract: a section is a dataclass of defaults whose fields are sections or plain values (``bool``,
``int``, ``float``, ``str``, literals, tuples of those, mappings from whole numbers to texts, and
unions of them). `read_settings` converts and refuses; it never guesses. An unknown key, a value of
another type and a key that stands twice in a file are `UsageError`, with the key's whole path and
what is known. `plain` and `read_settings` are each other's inverse. The docstring under a field is
its help, see `describe`.

Which keys exist and which values fit together is `kernelgym_train.config.config`'s business.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast

import yaml

from kernelgym.errors import UnknownName, UsageError

__all__ = ["Key", "describe", "keys_that_differ", "plain", "read_settings", "read_yaml"]

_RENAMED = {"judge.ready": "judge.standby"}
"""Settings of version 0.1.0 that have another name now."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting, for help and documentation."""

    path: str
    """Such as ``optimiser.learning_rate``."""
    type: str
    default: Any
    """As plain data."""
    help: str


def read_settings(kind: type[T], data: Mapping[str, Any], overrides: Sequence[str] = ()) -> T:
    """Return settings from plain data, and what overrides it.

    Args:
        kind: The dataclass.
        data: As read from a file: sections and their keys; what is left out has its default.
        overrides: Texts such as ``optimiser.steps=200``; the value is read as YAML.

    Raises:
        UnknownName: If there is no such key.
        UsageError: If a value does not fit, or an override is none.
    """
    merged = _copied(data)
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"an override is key.path=value, got {text!r}")
        _put(kind, merged, path.strip(), value.strip())
    return cast(T, _section(kind, merged, "", kind))


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


def plain(settings: Any) -> Any:
    """Return settings as plain data, every default spelt out."""
    if dataclasses.is_dataclass(settings):
        return {f.name: plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
    if isinstance(settings, tuple):
        return [plain(value) for value in settings]
    return dict(settings) if isinstance(settings, Mapping) else settings


def describe(kind: type, prefix: str = "") -> Iterator[Key]:
    """Yield every key of a dataclass of settings, its sections' included."""
    hints, told = typing.get_type_hints(kind), _field_docs(kind)
    for field in dataclasses.fields(kind):
        hint, path = hints[field.name], prefix + field.name
        if dataclasses.is_dataclass(hint):
            yield from describe(cast(type, hint), f"{path}.")
        else:
            yield Key(path, _named(hint), plain(_default(field)), told.get(field.name, ""))


def keys_that_differ(one: Any, other: Any, prefix: str = "") -> tuple[str, ...]:
    """Return the paths at which two settings, both as plain data, are not the same."""
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


def _copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def _put(kind: type, data: dict[str, Any], path: str, text: str) -> None:
    """Put an override where it belongs, as text or as what the text means."""
    root = kind
    *sections, name = path.split(".")
    for place, section in enumerate(sections):
        hints = typing.get_type_hints(kind)
        if not dataclasses.is_dataclass(hints.get(section)):
            raise _unknown(kind, ".".join(sections[:place]), path, root)
        kind = cast(type, hints[section])
        inner = data.get(section)
        data[section] = data = {} if inner is None else inner
        if not isinstance(data, dict):
            raise UsageError(f"{section} is a section of settings, got {data!r}")
    hint = typing.get_type_hints(kind).get(name)
    if hint is None:
        raise _unknown(kind, ".".join(sections), path, root)
    # A text is taken as it stands: a run may be called 1e5, or no.
    data[name] = text if hint is str else _yaml(text, path)


def _section(kind: Any, data: Any, prefix: str, root: type) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{prefix.rstrip('.')} is a section of settings, got {data!r}")
    hints = typing.get_type_hints(kind)
    for name in data:
        if name not in hints:
            raise _unknown(kind, prefix.rstrip("."), f"{prefix}{name}", root)
    values = {}
    for name, value in data.items():
        path, hint = f"{prefix}{name}", hints[name]
        if dataclasses.is_dataclass(hint):
            values[name] = _section(hint, {} if value is None else value, f"{path}.", root)
            continue
        found = _fit(value, hint)
        if found is _NO:
            quoted = "; put it in quotes" if hint is str and value is not None else ""
            raise UsageError(f"{path} is {_named(hint)}, got {value!r}{quoted}")
        values[name] = found
    return kind(**values)


_NO = object()
"""What does not fit."""


def _fit(value: Any, hint: Any) -> Any:
    """Return `value` as what the hint asks for, or `_NO`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        fits = (_fit(value, option) for option in arguments)
        return next((fit for fit in fits if fit is not _NO), _NO)
    if origin is Literal:
        if value is False and "off" in arguments:  # what YAML 1.1 makes of it
            return "off"
        return value if value in arguments and not isinstance(value, bool) else _NO
    if origin is tuple:
        listed = value if isinstance(value, list | tuple) else [value]
        fitted = [_fit(item, arguments[0]) for item in listed]
        return _NO if _NO in fitted else tuple(fitted)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping) or not value:
            return _NO
        pairs = [(_fit(k, arguments[0]), _fit(v, arguments[1])) for k, v in value.items()]
        return _NO if any(_NO in pair for pair in pairs) else dict(pairs)
    if hint is float or hint is int:
        return _number(value, hint)
    return value if isinstance(value, hint) else _NO


def _number(value: Any, hint: type) -> Any:
    """Return a number; YAML 1.1 reads 1e-5, for want of a point, as a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _NO
    if isinstance(value, int):
        return float(value) if hint is float else value
    try:
        number = float(value)
    except ValueError:
        return _NO
    if hint is float:
        return number if math.isfinite(number) else _NO
    return int(number) if number.is_integer() else _NO


def _unknown(kind: Any, section: str, path: str, root: type) -> UnknownName:
    name = path[len(section) :].lstrip(".")
    leaf = path.rpartition(".")[2]
    elsewhere = [key.path for key in describe(root) if key.path.endswith(f".{leaf}")]
    hint = f"There is {' and '.join(elsewhere)}." if elsewhere else ""
    if path in _RENAMED:
        hint = f"{path} is called {_RENAMED[path]} now."
    what = f"setting of {section}" if section else "setting"
    return UnknownName(what, name, typing.get_type_hints(kind), hint)


def _named(hint: Any) -> str:
    """Return how a type is called in a message."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_named(option) for option in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is tuple:
        return f"a list such as [a, b], each {_named(arguments[0])}"
    if isinstance(origin, type):
        return f"a mapping from {_named(arguments[0])} to {_named(arguments[1])}"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(hint, "null")


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _field_docs(kind: type) -> dict[str, str]:
    """Return the docstrings under a dataclass's fields."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    told = {}
    statements = cast(ast.ClassDef, body).body
    for field, after in itertools.pairwise(statements):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                told[field.target.id] = " ".join(str(after.value.value).split())
    return told


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain data, and refuses a key that stands twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep=deep)
        if len(found) < len(node.value):
            names = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            raise yaml.YAMLError(f"{', '.join(twice)} stands there twice")
        return cast("dict[Any, Any]", found)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{where} cannot be read as YAML: {' '.join(str(error).split())}"
        ) from None
