"""`Variant`: one state of a search, and the keys of states.

Contract: a variant renders to one `Kernel`, the same at every time and in every process. States
whose kernels differ in comments, layout or the order of flags have one key. Pure.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from kernelgym import Kernel
from kernelgym_train.mcgs.source_forms import is_read, normal, read_flags, rendered


@dataclass(frozen=True, slots=True, order=True)
class MoveStep:
    """One move made at one place of a kernel in one way."""

    move: str
    """Id of the move."""
    target: str
    """Place of the kernel; a move has at most one step at each place."""
    choice: str
    """Way in which the move was made, such as ``4 times``."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel's text, with compiler flags, meta-parameters and the steps that led to it."""

    source: str
    """Text of the kernel's module, with the start's own flags and meta-parameters."""
    language: str
    flags: tuple[str, ...] = ()
    """Compiler flags."""
    launch: tuple[tuple[str, int], ...] = ()
    """Values of meta-parameters, sorted by name; `kernelgym_train.mcgs.source_forms` says where
    each language writes them."""
    applied: tuple[MoveStep, ...] = ()
    """Steps that lead from the start to the variant; they do not affect the variant's key."""

    def kernel(self) -> Kernel:
        """Return the variant as a kernel."""
        source = rendered(self.language, self.source, self.flags, self.launch)
        return Kernel(source, self.language)


def read_variant(kernel: Kernel, *, any_form: bool = False) -> Variant:
    """Return a kernel as a variant without steps.

    Args:
        kernel: The kernel.
        any_form: Whether the module may be one that rules cannot change.

    Raises:
        UsageError: If a search does not understand the kernel's module.
    """
    language, source = kernel.language, kernel.source
    is_plain = any_form and not is_read(language, source)
    return Variant(source, language, () if is_plain else read_flags(language, source))


def steps_in_words(steps: Iterable[MoveStep]) -> str:
    """Return steps as a text for a reader, such as ``unroll (4 times), hoist (keep)``."""
    return ", ".join(f"{step.move} ({step.choice})" for step in steps)


@functools.lru_cache(maxsize=4096)
def _key(
    source: str, language: str, flags: tuple[str, ...], launch: tuple[tuple[str, int], ...]
) -> str:
    module, extension = normal(language, source, launch)
    state = {
        "language": language,
        "module": module,
        "extension": extension,
        "flags": sorted(set(flags)),
    }
    return _digest(state)


def state_key(variant: Variant) -> str:
    """Return 32 hexadecimal digits, equal for variants that are the same program."""
    return _key(variant.source, variant.language, variant.flags, variant.launch)


def launch_key(variant: Variant) -> str:
    """Return 32 hexadecimal digits, equal for variants that differ in compiled text alone.

    The modules of such variants run the same Python code, and compiler flags do not count, so that
    with equal machine code they do the same.
    """
    # The module that is judged, since compiler flags may add linker flags.
    module, _ = normal(variant.language, variant.kernel().source, ())
    return _digest({"language": variant.language, "module": module})


def context_key(parts: Iterable[tuple[str, str | Sequence[str]]]) -> str:
    """Return 32 hexadecimal digits, equal for searches whose times can be compared.

    Args:
        parts: (what it is, value), such as the task's digest, the ruleset's label, the judge's
            provenance and the package's version. States of other contexts are never compared.
    """
    return _digest(dict(parts))


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def plain_variant(variant: Variant) -> dict[str, Any]:
    """Return a variant as JSON."""
    return dataclasses.asdict(variant)


def variant_of(data: Mapping[str, Any]) -> Variant:
    """Return the variant from the JSON object that `plain_variant` made."""
    return _VARIANT.validate_python(data)


_VARIANT = TypeAdapter(Variant)
