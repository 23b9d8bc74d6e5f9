"""Flat names of settings, as kernel_rl and the Tinker cookbook have them.

Contract: pure; the names are in flat_names.yaml. `read_flat` turns each flat name, at a file's top
level or on the command line, into the setting that it stands for, so that a dump shows ours alone.
A name that has no counterpart is refused with what does its work here, or with why nothing does. A
name given as null is left out.
The command line goes before the file; within one of them a setting that is given twice, under two
names and with two values, is refused.

Whether values fit is the business of `kernelgym_train.config.settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from kernelgym.errors import UnknownName, UsageError
from kernelgym_train.config.settings import put

_NAMES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
FLAT: Mapping[str, Sequence[str]] = _NAMES["flat"]
"""Settings by the flat names of other systems, which may follow ``dataset_builder.``."""
BUILDER: Mapping[str, Sequence[str]] = _NAMES["builder"]
"""Settings by names that are known below ``dataset_builder.`` only."""
REFUSED: Mapping[str, str] = _NAMES["refused"]
"""Reasons why a flat name stands for no setting, with the setting to use instead."""
BUILDER_REFUSED: Mapping[str, str] = _NAMES["builder_refused"]
"""Reasons why a name below ``dataset_builder.`` stands for no setting."""

_BATCH = "resume_from_batch"
_MODES = ("single_turn", "multi_turn")
_BUILDER = "dataset_builder"
_RAICL = (f"{_BUILDER}.prompt_option", "raicl")
"""Flat name and value that turn retrieval on; the index is named by a setting of its own."""


@dataclass(frozen=True, slots=True)
class FlatSettings:
    """Settings of a file and of a command line, under this package's names and no flat ones."""

    data: dict[str, Any]
    """Settings of the file, as sections and their keys."""
    overrides: tuple[str, ...]
    """Settings of the command line, as texts such as ``optimiser.steps=200``."""
    mode: str = ""
    """Mode that was given, for `check_mode` to check; empty if none was."""
    retrieves: bool = False
    """Whether prompts with retrieved entries were asked for; `check_retrieves` checks it."""


def read_flat(data: Mapping[str, Any], overrides: Sequence[str]) -> FlatSettings:
    """Return data and overrides with our names in place of flat ones.

    Args:
        data: Settings as read from a file.
        overrides: Texts such as ``batch_size=4`` and ``optimiser.steps=200``.

    Raises:
        UnknownName: If a mode, or a name below ``dataset_builder.``, is not known.
        UsageError: If a name has no counterpart, or a setting is given twice in one place.
    """
    ours: dict[str, Any] = {}
    named: list[tuple[str, Any]] = []
    for name, value in data.items():
        if name == _BUILDER:
            if not isinstance(value, Mapping | None):
                raise UsageError(f"{_BUILDER} is a section of settings, got {value!r}")
            named += [(f"{_BUILDER}.{inner}", each) for inner, each in (value or {}).items()]
        elif _is_flat(name):
            named.append((name, value))
        else:
            ours[name] = dict(value) if isinstance(value, Mapping) else value
    retrieves = _RAICL in named
    found, mode = _translated((each for each in named if each != _RAICL), _paths(ours))
    for path, value in found.items():
        put(ours, path, value)

    plain: list[str] = []
    named = []
    for text in overrides:
        name, equals, value = text.partition("=")
        if equals and _is_flat(name.strip()):
            named.append((name.strip(), value.strip()))
        else:
            plain.append(text)
    given = {path.strip(): value.strip() for path, _, value in (t.partition("=") for t in plain)}
    retrieves = retrieves or _RAICL in named
    found, late = _translated((each for each in named if each != _RAICL), given)
    texts = (*plain, *(f"{path}={each}" for path, each in found.items()))
    return FlatSettings(ours, texts, late or mode, retrieves)


def read_from_step(overrides: Sequence[str], step: int | None) -> tuple[list[str], int | None]:
    """Return overrides without ``resume_from_batch``, and the step to go on from.

    Args:
        overrides: Texts such as ``resume_from_batch=40``, of a run that is gone on with.
        step: Value of ``--from-step``; None if it is not given.

    Raises:
        UsageError: If it is not a number, or two are given.
    """
    rest: list[str] = []
    for text in overrides:
        name, _, value = text.partition("=")
        if name.strip() != _BATCH:
            rest.append(text)
            continue
        if value.strip() in ("null", "None"):
            continue
        if not value.strip().isdecimal():
            raise UsageError(f"{_BATCH} is a number of steps, got {value!r}; give one such as 40")
        if step not in (None, int(value)):
            raise UsageError(
                f"{text} is --from-step {int(value)}, and --from-step {step} was given; give one "
                "of them"
            )
        step = int(value)
    return rest, step


def check_mode(mode: str, max_turns: int) -> None:
    """Refuse a mode that contradicts the number of turns.

    Raises:
        UsageError: If it does.
    """
    if mode and (mode == "single_turn") != (max_turns == 1):
        raise UsageError(
            f"mode={mode} and env.max_turns={max_turns} contradict each other; leave mode out: "
            "an episode is as long as env.max_turns says"
        )


def check_retrieves(retrieves: bool, index: str) -> None:
    """Refuse a request for retrieved entries if no index is named.

    Raises:
        UsageError: If it does not.
    """
    if retrieves and not index:
        raise UsageError(
            f"{_RAICL[0]}=raicl needs an index; set retrieval.index (or {_BUILDER}.rag_index_path) "
            "to synthetic, or to a folder that `kernelgym index build` wrote"
        )


def _is_flat(name: str) -> bool:
    first = name.partition(".")[0]
    return name in FLAT or first in (_BUILDER, *REFUSED)


def _translated(
    named: Iterable[tuple[str, Any]], given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the settings that the flat names of one source stand for, and its mode."""
    found: dict[str, tuple[str, Any]] = {path: (path, value) for path, value in given.items()}
    ours: dict[str, Any] = {}
    mode = ""
    for name, value in named:
        leaf, paths = _counterparts(name, value)
        if value is None or value in ("null", "None"):
            continue
        if leaf == "mode":
            if value not in _MODES:
                raise UnknownName("mode", value, _MODES)
            mode = value
            continue
        for path, each in zip(paths, _values(leaf, value, len(paths)), strict=True):
            before, other = found.setdefault(path, (name, each))
            if str(other) != str(each):
                raise UsageError(
                    f"{before} and {name} are one setting, {path}, and were given two values; "
                    "give one of them"
                )
            ours[path] = each
    if mode == "single_turn" and "env.max_turns" not in found:
        ours["env.max_turns"] = 1
    return ours, mode


def _counterparts(name: str, value: Any) -> tuple[str, Sequence[str]]:
    """Return a flat name without its section, and the settings that it stands for."""
    head, _, inner = name.partition(".")
    leaf = inner if head == _BUILDER else head
    refused = {**REFUSED, **BUILDER_REFUSED} if head == _BUILDER else REFUSED
    known = {**FLAT, **BUILDER} if head == _BUILDER else FLAT
    if leaf in known:
        return leaf, known[leaf]
    if leaf in refused:
        if value is None or value in ("null", "None"):
            return leaf, ()
        raise UsageError(f"{name} is not a setting of kernelgym: {refused[leaf]}")
    raise UnknownName(f"setting of {_BUILDER}", leaf, known)


def _values(leaf: str, value: Any, count: int) -> tuple[Any, ...]:
    """Return the value that each setting behind a flat name gets."""
    if leaf == "log_path":
        path = PurePath(str(value))
        return str(path.parent), path.name
    if leaf == "reward_correctness_weight":
        # That weight was paid for the share of tests passed. Here, as in the presets stage1 and
        # stage2, half of it is paid for that and half for a kernel that is right.
        try:
            return (float(value) / 2.0,) * 2
        except (TypeError, ValueError):
            return (value,) * 2
    return (value,) * count


def _paths(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= _paths(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
