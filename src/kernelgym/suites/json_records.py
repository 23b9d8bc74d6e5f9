"""JSON into frozen dataclasses, and the JSON Schema of them.

Contract: a dataclass's annotations decide. `read_record` refuses what does not fit with a
`UsageError` that names the place, such as ``contract.tensors[1].dtype``, and what fits there;
`schema_of` returns a schema that accepts what it accepts, as far as types go.

Known annotations: ``str, int, float, bool``, ``Literal`` of texts, ``tuple[T, ...]``,
``Mapping[str, T]``, ``T | None``, other dataclasses, and unions. Of a union of dataclasses, the
field ``kind`` or ``type`` says which; where that one needs nothing else, its name alone will do.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from kernelgym.errors import UnknownName, UsageError

__all__ = ["read_record", "schema_of"]

T = TypeVar("T")
_TAGS = ("kind", "type")
_MOST_VALUE = 2**63 - 1
_PLAIN: Mapping[type, tuple[str, str]] = {
    str: ("string", "a text"),
    int: ("integer", "a whole number"),
    float: ("number", "a number"),
    bool: ("boolean", "true or false"),
}


def read_record(cls: type[T], data: object, where: str = "") -> T:
    """Return a dataclass from JSON.

    Args:
        cls: The dataclass.
        data: What `json.loads` returned.
        where: Place of the data, for messages; empty for the whole document.

    Raises:
        UsageError: If a field is missing, unknown or of another type.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"{where or 'the document'} is an object with fields, got {_shown(data)}")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in fields:
            raise UnknownName(f"field of {where or 'the document'}", name, fields)
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _read(hints[name], data[name], f"{where}.{name}" if where else name)
        elif _is_needed(field):
            raise UsageError(f"{where + '.' if where else ''}{name} is missing")
    return cls(**values)


def schema_of(cls: type) -> dict[str, Any]:
    """Return the JSON Schema of a dataclass, with all it refers to."""
    definitions: dict[str, Any] = {}
    whole = _record_schema(cls, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": cls.__name__,
        **whole,
        "$defs": dict(sorted(definitions.items())),
    }


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _shown(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return typing.get_args(hint)
    return (hint,)


def _tag(cls: type) -> tuple[str, str] | None:
    """Return the field that tells a dataclass from others, and its value."""
    hints = typing.get_type_hints(cls)
    for name in _TAGS:
        if name in hints and typing.get_origin(hints[name]) is Literal:
            values = typing.get_args(hints[name])
            if len(values) == 1:
                return name, values[0]
    return None


def _stands_alone(cls: type) -> bool:
    """Return True if a tagged dataclass needs no other field."""
    tag = _tag(cls)
    return tag is not None and not any(
        _is_needed(field) for field in dataclasses.fields(cls) if field.name != tag[0]
    )


def _read(hint: Any, data: object, where: str) -> Any:
    choices = _alternatives(hint)
    if len(choices) == 1:
        return _read_one(hint, data, where)
    if data is None and types.NoneType in choices:
        return None
    tagged = {tag[1]: each for each in choices if isinstance(each, type) and (tag := _tagged(each))}
    if tagged:
        key = next(iter(tag[0] for each in tagged.values() if (tag := _tag(each))))
        given = data
        if isinstance(data, Mapping):
            if key not in data:
                raise UsageError(f"{where}.{key} is missing; known: {', '.join(tagged)}")
            given = data[key]
        if not isinstance(given, str) or given not in tagged:
            raise UnknownName(where, given, tagged)
        if not isinstance(data, Mapping):
            data = {key: data}
        return read_record(tagged[given], data, where)
    fitting = [each for each in choices if each is not types.NoneType]
    for each in fitting:
        try:
            return _read_one(each, data, where)
        except UsageError as error:
            if len(fitting) == 1:
                raise error
    told = " or ".join(_PLAIN[each][1] for each in fitting if each in _PLAIN)
    raise UsageError(f"{where} is {told}, got {_shown(data)}")


def _place(where: str, name: str) -> str:
    return f"{where}.{name}" if name.isidentifier() else f"{where}[{name!r:.80}]"


def _tagged(cls: type) -> tuple[str, str] | None:
    return _tag(cls) if dataclasses.is_dataclass(cls) else None


def _read_one(hint: Any, data: object, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if data not in inner or isinstance(data, bool):
            raise UnknownName(where, data, inner)
        return data
    if origin is tuple:
        if isinstance(data, str) or not isinstance(data, Sequence):
            raise UsageError(f"{where} is a list, got {_shown(data)}")
        return tuple(_read(inner[0], each, f"{where}[{index}]") for index, each in enumerate(data))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise UsageError(f"{where} is an object, got {_shown(data)}")
        return types.MappingProxyType(
            {
                _read_one(str, name, f"a name in {where}"): _read(
                    inner[1], each, _place(where, name)
                )
                for name, each in data.items()
            }
        )
    if dataclasses.is_dataclass(hint):
        return read_record(typing.cast("type[Any]", hint), data, where)
    name, told = _PLAIN[hint][0], _PLAIN[hint][1]
    fits = isinstance(data, bool) if hint is bool else not isinstance(data, bool)
    if hint is float:
        try:
            fits = fits and isinstance(data, int | float) and math.isfinite(data)
        except OverflowError:  # a whole number beyond all floating-point ones
            fits = False
        data = float(data) if fits else data  # type: ignore[arg-type]
    elif hint is not bool:
        fits = fits and isinstance(data, hint)
    if fits and hint is int and not -_MOST_VALUE <= typing.cast("int", data) <= _MOST_VALUE:
        raise UsageError(f"{where} does not fit in 64 bits: {_shown(data)}")
    if fits and hint is str and any("\ud800" <= each <= "\udfff" for each in str(data)):
        raise UsageError(f"{where} holds half a surrogate pair, which is no text: {_shown(data)}")
    if not fits:
        raise UsageError(f"{where} is {told}, got {_shown(data)} ({name} expected)")
    return data


def _record_schema(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    tag = _tag(cls)
    return {
        "type": "object",
        "properties": {field.name: _schema(hints[field.name], definitions) for field in fields},
        "required": [
            field.name for field in fields if _is_needed(field) or (tag and field.name == tag[0])
        ],
        "additionalProperties": False,
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    choices = _alternatives(hint)
    if len(choices) > 1:
        alone = [
            tag[1]
            for each in choices
            if isinstance(each, type) and (tag := _tagged(each)) and _stands_alone(each)
        ]
        found = [_schema(each, definitions) for each in choices]
        return {"anyOf": found + ([{"enum": alone}] if alone else [])}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is types.NoneType:
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema(inner[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1], definitions)}
    if dataclasses.is_dataclass(hint):
        name = typing.cast("type", hint).__name__
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _record_schema(typing.cast("type", hint), definitions)
        return {"$ref": f"#/$defs/{name}"}
    return {"type": _PLAIN[hint][0]}
