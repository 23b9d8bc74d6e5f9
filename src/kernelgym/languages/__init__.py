"""The languages a kernel can be written in, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernelgym.errors import UnknownName, UnsupportedLanguage

__all__ = ["LANGUAGES", "REFERENCE_LANGUAGE", "Language", "check_language", "language", "noun_of"]

REFERENCE_LANGUAGE = "torch"
"""Plain PyTorch: for runs of the reference only, never for a kernel."""


@dataclass(frozen=True, slots=True)
class Language:
    """One kernel language: a way of giving `ModelNew` code of its own."""

    name: str
    title: str
    """How prompts call it."""
    devices: tuple[str, ...]
    """Device kinds that can run it: ``cpu``, ``cuda``."""
    timed_on: tuple[str, ...]
    """Device kinds on which its speed means something (the Triton interpreter's does not)."""
    marker: str
    """Text that a kernel in this language cannot do without; used by screening and prompts."""
    fence: str = "python"
    """Language tag of the fenced block an answer is written in."""

    def is_timed(self, device: str) -> bool:
        """Return whether its speed means something on a device such as ``cpu`` or ``cuda:0``."""
        return device.partition(":")[0] in self.timed_on


LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Language("triton", "Triton", ("cpu", "cuda"), ("cuda",), "triton.jit"),
            Language("cpp", "C++", ("cpu",), ("cpu",), "load_inline"),
            Language("cuda", "CUDA C++", ("cuda",), ("cuda",), "__global__"),
            Language("hip", "HIP C++", ("hip",), ("hip",), "__global__"),
        )
    }
)


def language(name: str) -> Language:
    """Look a language up by name.

    Raises:
        UnknownName: If there is no such language.
    """
    try:
        return LANGUAGES[name]
    except (KeyError, TypeError):
        raise UnknownName("language", name, LANGUAGES) from None


def check_language(name: str, device: str) -> Language:
    """Look a language up and make sure that `device` can run it.

    Args:
        name: Language name.
        device: Device such as ``cpu`` or ``cuda:0``.

    Raises:
        UnknownName: If there is no such language.
        UnsupportedLanguage: If the device's kind cannot run it, or it is for references only.
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
    return found


def noun_of(language: str) -> str:
    """Return what a custom kernel in a language is called in messages."""
    return {"triton": "Triton kernel", "cpp": "C++ extension function"}.get(
        language, f"custom {language.upper()} kernel"
    )
