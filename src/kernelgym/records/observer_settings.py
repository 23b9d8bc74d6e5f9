"""An observer's settings as plain data, and the observer that plain data describes.

What a model read is not kept with an episode but made again, and for that its observer must be
known. Contract: `observer_settings` names what differs from the default; `recorded_observer` gives
an equal observer back, or refuses. Only settings that are data can be written down: of a part that
is a function the name is kept, so that its absence is noticed.

Two settings are not what a field holds. ``prompt`` names the kind of observer, unless it is the
full prompt's. The token counter is left out, since trainers count in their model's own tokens: it
decides only what was cut, and where it did, what was read has another digest in the record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.context import Context
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.kinds import PROMPTS
from kernelgym.prompts.observer import Observer
from kernelgym.retrieval.prompt_part import Retrieval
from kernelgym.rulesets import recorded_ruleset

if TYPE_CHECKING:
    from kernelgym.records.trajectories import EpisodeRecord

_TYPES: dict[str, type] = {"context": Context, "hardware": Hardware, "retrieval": Retrieval}
"""Types of settings, by the names that records use."""
_SHORT_NAMES = {kind: name for name, kind in _TYPES.items()}
_PROMPT_NAMES = {kind: name for name, kind in PROMPTS.items()}
_OF_THE_EPISODE = ("language", "device", "ruleset", "max_turns")
"""Fields of an observer that the record of an episode holds in fields of its own."""
_LEFT_OUT = (*_OF_THE_EPISODE, "count")


def observer_settings(observer: Observer) -> dict[str, Any]:
    """Return an observer's settings that are not the defaults, as JSON data.

    Those that the record of an episode has anyway (language, device, ruleset, turns) are left out.
    """
    settings: dict[str, Any] = {}
    kind = type(observer)
    if kind is not Observer:
        settings["prompt"] = _PROMPT_NAMES.get(kind) or _plain(kind)
    for field in dataclasses.fields(observer):
        value = getattr(observer, field.name)
        if field.name not in _LEFT_OUT and field.init and value != field.default:
            settings[field.name] = _plain(value)
    return settings


def recorded_observer(record: EpisodeRecord) -> Observer:
    """Return the observer that an episode was played with.

    Raises:
        UsageError: If the record does not say all of it, or names a ruleset that never shipped.
    """
    rules = recorded_ruleset(record.ruleset)
    known = {field.name for field in dataclasses.fields(Observer) if field.init}
    unknown = sorted(set(record.observer) - known - {"prompt"})
    if unknown:
        raise UsageError(f"the record names settings that no observer has: {', '.join(unknown)}")
    settings = {key: _rebuilt(value) for key, value in record.observer.items()}
    prompt = settings.pop("prompt", "full")
    if prompt not in PROMPTS:
        raise UnknownName("prompt", prompt, PROMPTS)
    kind = PROMPTS[prompt]
    return kind(record.language, record.device, rules, record.trajectory.horizon, **settings)


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {"mapping": {str(key): _plain(item) for key, item in value.items()}}
    kind = type(value)
    if kind in _SHORT_NAMES:
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}  # type: ignore[arg-type]
        return {"type": _SHORT_NAMES[kind], "fields": fields}
    named = value if hasattr(value, "__qualname__") else kind
    return {"code": f"{named.__module__}:{named.__qualname__}"}


def _rebuilt(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "mapping" in value:
        return {key: _rebuilt(item) for key, item in value["mapping"].items()}
    if "code" in value:
        raise UsageError(
            f"the episode's observer used {value['code']}, which a file cannot bring back; give "
            "the observer it was played with"
        )
    # A file may name what is part of a prompt, not anything that can be called.
    name = str(value.get("type", ""))
    kind = _TYPES.get(name)
    if kind is None:
        raise UnknownName("type of an observer's setting", name, _TYPES)
    return kind(**{key: _rebuilt(item) for key, item in value["fields"].items()})
