"""The languages a kernel can be written in, in one table, with one file for each language.

Contract: outside this room, `kernelgym.judge.untrusted` and Synthetic's writers, no code compares a
language's name or has a table by it; it asks a `Language`. docs/languages.md says how to add one.
This room may import `kernelgym.errors` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym.errors import UnknownName, UnsupportedLanguage
from kernelgym.languages.cpp import CPP
from kernelgym.languages.cuda import CUDA
from kernelgym.languages.cute import CUTE
from kernelgym.languages.definition import Advice, HeaderRoot, Language, OwnKernel, Package, Tool
from kernelgym.languages.examples import WorkedExample
from kernelgym.languages.gluon import GLUON
from kernelgym.languages.hip import HIP
from kernelgym.languages.thunderkittens import THUNDERKITTENS
from kernelgym.languages.tilelang import TILELANG
from kernelgym.languages.triton import TRITON

__all__ = [
    "LANGUAGES",
    "REFERENCE_LANGUAGE",
    "Advice",
    "HeaderRoot",
    "Language",
    "OwnKernel",
    "Package",
    "Tool",
    "WorkedExample",
    "check_language",
    "half_of",
    "header_variables",
    "is_interpreted",
    "language",
    "languages_on",
    "noun_of",
]

REFERENCE_LANGUAGE = "torch"
"""Language of references, plain PyTorch; no kernel is written in it."""

LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {entry.name: entry for entry in (TRITON, CPP, CUDA, HIP, CUTE, GLUON, TILELANG, THUNDERKITTENS)}
)
"""Languages by name, the default first."""


def language(name: str) -> Language:
    """Return the language of a name.

    Raises:
        UnknownName: If there is no such language.
    """
    try:
        return LANGUAGES[name]
    except (KeyError, TypeError):
        raise UnknownName("language", name, LANGUAGES) from None


def check_language(name: str, device: str, precision: str = "") -> Language:
    """Return a language that a device can run.

    Args:
        name: Language name.
        device: Device such as ``cpu`` or ``cuda:0``.
        precision: Precision that kernels have to compute in; empty or ``own`` if that depends on
            the problem.

    Raises:
        UnknownName: If there is no such language.
        UnsupportedLanguage: If the device cannot run the language, if the language does not
            compute in the precision, or if it is for references only.
    """
    if name == REFERENCE_LANGUAGE:
        raise UnsupportedLanguage(
            f"language {name!r} is what references are written in and run as; "
            f"a kernel needs one of: {', '.join(LANGUAGES)}"
        )
    found = language(name)
    kind = str(device).partition(":")[0]
    if kind not in found.devices:
        able = [entry.name for entry in LANGUAGES.values() if kind in entry.devices]
        raise UnsupportedLanguage(
            f"language {name!r} does not run on device {device!r} "
            f"(it runs on: {', '.join(found.devices)}); "
            f"this device runs: {', '.join(able) or 'none'}"
        )
    if precision not in ("", "own", *found.precisions):
        raise UnsupportedLanguage(
            f"language {name!r} does not compute in {precision} "
            f"(it computes in: {', '.join(found.precisions)}); ask for one of these by --precision "
            "or kernelgym.rulesets.precise_rules, or choose another language"
        )
    return found


def languages_on(device: str) -> tuple[str, ...]:
    """Return the names of the languages that run on a device such as ``cpu`` or ``cuda:0``."""
    kind = device.partition(":")[0]
    return tuple(name for name, entry in LANGUAGES.items() if kind in entry.devices)


def is_interpreted(language: str, device: str) -> bool:
    """Return whether an interpreter runs a language's kernels on a device.

    False for the language of references.
    """
    entry = LANGUAGES.get(language)
    return entry is not None and entry.is_interpreted(device)


def half_of(language: str) -> str:
    """Return the name of the module that runs beside a language's kernels; empty if none."""
    entry = LANGUAGES.get(language)
    return "" if entry is None else entry.half


def header_variables() -> tuple[str, ...]:
    """Return the environment variables that name checkouts of headers, over all languages."""
    roots = (root for entry in LANGUAGES.values() for root in entry.headers)
    return tuple(dict.fromkeys(root.variable for root in roots))


def noun_of(language: str) -> str:
    """Return the words for a kernel in a language that messages use."""
    entry = LANGUAGES.get(language)
    return f"custom {language.upper()} kernel" if entry is None else entry.noun
