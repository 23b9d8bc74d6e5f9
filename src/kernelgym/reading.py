"""Data that comes in, from JSON, YAML or a mapping, as typed objects.

Contract: `read` returns an object of the class that is asked for, or raises a `UsageError` of one
line that names the place in the data, such as ``contract.tensors[1].dtype``, what was given there
and what fits. pydantic does the work. Types are strict (a text is not a number, 1 is not true),
unknown fields are refused, and so are NaN and infinities. `schema` is the JSON Schema of what
`read` accepts, and `options` lists its fields for help texts; an attribute's docstring is its help.

Classes are frozen dataclasses, whose ``__post_init__`` may refuse values with a `UsageError`, or
models of pydantic. A field of several dataclasses is told apart by a discriminator.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kernelgym.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
STRICT: Any = {
    "extra": "forbid",
    "frozen": True,
    "allow_inf_nan": False,
    "use_attribute_docstrings": True,
}
"""pydantic's configuration of everything that is read."""
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_TYPES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One field that settings or data can have, for help texts and documentation."""

    path: str
    """Place in the data, such as ``optimiser.learning_rate``."""
    type: str
    """Values that the field takes, in words."""
    default: Any
    """Default value as plain data; None if there is none."""
    help: str
    """Docstring of the attribute, in one line."""


def read(kind: type[T], data: object, where: str = "", noun: str = "field") -> T:
    """Return a typed object made from plain data, or refuse the data.

    Args:
        kind: A dataclass, or a model of pydantic.
        data: Mappings, lists, texts, numbers, booleans and None, as `json.loads` returns them.
        where: Name of the data in messages, such as ``context``; empty for a whole document.
        noun: Word for a field in messages, such as ``setting``.

    Raises:
        UnknownName: If there is no such field, or no such value where values have names.
        UsageError: If a field is missing, or its value does not fit.
    """
    from pydantic import ValidationError

    try:
        adapter = _adapter(cast("Any", kind))
        found: T = adapter.validate_json(json.dumps([data], default=str), strict=True)[0]
    except ValidationError as error:
        raise _usage_error(error, kind, where, noun) from None
    return found


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    # Inside of another type, a plain dataclass takes the configuration that is given here.
    return TypeAdapter(tuple[kind], config=STRICT)


@functools.cache
def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a class, with all that it refers to."""
    whole = _adapter(kind).json_schema()
    (item,) = whole["prefixItems"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": item["$ref"],
        "$defs": whole["$defs"],
    }


@functools.cache
def options(kind: Any) -> tuple[Option, ...]:
    """Return every field of a class, those of its sections included."""
    return tuple(_options(schema(kind), schema(kind)["$defs"], ""))


def _options(node: Mapping[str, Any], defs: Mapping[str, Any], prefix: str) -> Iterator[Option]:
    for name, given in _branches(node, defs)[0]["properties"].items():
        branches = _branches(given, defs)
        if len(branches) == 1 and "properties" in branches[0]:
            yield from _options(given, defs, f"{prefix}{name}.")
        else:
            told = " ".join(given.get("description", "").split())
            yield Option(f"{prefix}{name}", _in_words(given, defs), given.get("default"), told)


def _branches(node: Mapping[str, Any], defs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternative schemas, one of which a value must fit, with references resolved."""
    if "$ref" in node:
        return _branches(defs[node["$ref"].rpartition("/")[2]], defs)
    return [each for some in node.get("anyOf", ()) for each in _branches(some, defs)] or [node]


def _in_words(node: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Return words for the values that fit a JSON Schema."""
    told, names = [], []
    for branch in _branches(node, defs):
        kind = branch.get("type")
        if "const" in branch or "enum" in branch:
            names += [str(each) for each in branch.get("enum", [branch.get("const")])]
        elif kind == "array":
            told.append(f"a list such as [a, b], each {_in_words(branch['items'], defs)}")
        elif kind == "object" and isinstance(branch.get("additionalProperties"), dict):
            each = _in_words(branch["additionalProperties"], defs)
            told.append(f"a mapping such as {{name: value}}, each value {each}")
        elif kind == "object":
            told.append("a mapping with fields")
        else:
            told.append("any value" if kind is None else _TYPES[kind])
    choices = [f"one of {', '.join(names)}"] if names else []
    return " or ".join(dict.fromkeys(choices + told))


def _place(
    kind: type, location: tuple[int | str, ...]
) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """Return the place of an error in the data, the schema of that place, and all definitions."""
    node: Mapping[str, Any] = schema(kind)
    defs, path = node["$defs"], ""
    for step in location:
        branches = [each for each in _branches(node, defs) if each.get("type") != "null"]
        named = [each for each in branches if _tag(each) == step]
        if len(branches) > 1 and named:  # pydantic tells which dataclass of several it took
            node = named[0]
            continue
        if len(branches) > 1 and not isinstance(step, int):
            break  # it tells which type of several it tried
        for branch in branches:
            inner = branch.get("properties", {}).get(step) or branch.get("additionalProperties")
            if isinstance(step, int):
                inner = branch.get("items")
        if not isinstance(inner, dict):
            break
        node = inner
        plain = isinstance(step, str) and step.isidentifier()
        path += f".{step}" if plain else f"[{step!r:.80}]"
    return path.lstrip("."), node, defs


def _tag(branch: Mapping[str, Any]) -> str | None:
    """Return the value of the field by which data name the dataclass that they are for."""
    tags = [each["const"] for each in branch.get("properties", {}).values() if "const" in each]
    return tags[0] if tags else None


def _usage_error(error: ValidationError, kind: type, where: str, noun: str) -> UsageError:
    """Return a one-line error on the first fault; unknown fields come before other faults."""
    unknown = ("extra_forbidden", "unexpected_keyword_argument")
    faults = sorted(error.errors(include_url=False), key=lambda fault: fault["type"] not in unknown)
    fault = faults[0]
    location, given, context = fault["loc"][1:], fault["input"], fault.get("ctx", {})
    path, node, defs = _place(kind, location)
    path = f"{where}.{path}".strip(".")
    shown = repr(given) if len(repr(given)) <= 80 else f"{given!r:.77}..."
    here = path or "the document"
    match fault["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            name = str(location[-1])
            known = next(b["properties"] for b in _branches(node, defs) if "properties" in b)
            others = [o.path for o in options(kind) if o.path.endswith(f".{name}")]
            hint = f"There is {' and '.join(others)}." if others else ""
            return UnknownName(f"{noun} of {path}" if path else noun, name, known, hint)
        case "value_error" if isinstance(cause := context["error"], UsageError):
            return cause
        case "missing":
            return UsageError(f"{path} is missing")
        case "union_tag_not_found":
            tag = context["discriminator"].strip("'")
            known = filter(None, map(_tag, _branches(node, defs)))
            return UsageError(f"{here}.{tag} is missing; known: {', '.join(known)}")
        case "union_tag_invalid":
            known = filter(None, map(_tag, _branches(node, defs)))
            return UnknownName(here, context["tag"], known)
        case "literal_error" | "enum" if len(faults) == 1:
            known = [v for b in _branches(node, defs) for v in b.get("enum", [b.get("const")])]
            return UnknownName(here, given, map(str, known))
        case kind_of_bound if kind_of_bound in _BOUNDS:
            word, bound = _BOUNDS[kind_of_bound]
            return UsageError(f"{here} must be {word} {context[bound]:g}, got {shown}")
        case "json_invalid":
            return UsageError(f"{here} holds half a surrogate pair, which is not text")
    words = _in_words(node, defs)
    if words == "a text" and isinstance(given, bool | int | float):
        shown += "; put it in quotes"
    return UsageError(f"{here} is {words}, got {shown}")
