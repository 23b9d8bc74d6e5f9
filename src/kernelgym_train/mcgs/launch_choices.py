"""Moves of a kernel spec's own: other choices of its meta-parameters.

Contract: of a C++ kernel, each meta-parameter is one constant of the text that the spec's kernel
was made with, ``constexpr int NAME = VALUE;``. A choice that the spec lists is put in the place of
the value; nothing is proposed where the constant does not stand there once. What a choice does to
the order of a sum the spec does not say, so the risk is ``reassociates``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kernelgym.suites.spec import KernelSpec
from kernelgym_train.mcgs.moves.definition import Realisation, SearchMove
from kernelgym_train.mcgs.variant import Variant, meta_parameter

__all__ = ["launch_choices"]


def launch_choices(spec: KernelSpec | None, language: str) -> tuple[SearchMove, ...]:
    """Return the moves that a spec's meta-parameters give.

    Args:
        spec: The spec; none gives none.
        language: The kernel's language.
    """
    if spec is None or not spec.is_extension:
        return ()
    meta = {name: choices for name, choices in spec.launch.meta.items() if len(choices) > 1}
    if not meta:
        return ()

    def realise(variant: Variant) -> Iterator[Realisation]:
        file = variant.file
        for name, choices in meta.items():
            found = meta_parameter(file.cpp, name)
            if found is None:
                continue
            for choice in choices:
                if str(choice) != found[1]:
                    launch = tuple(sorted({**dict(variant.launch), name: choice}.items()))
                    changed = dataclasses.replace(variant, launch=launch)
                    yield Realisation(name, str(choice), changed, "reassociates")

    return (
        SearchMove(
            id="launch_choice",
            languages=(language,),
            risk="reassociates",
            phase=0,
            weight=1.0,
            recipe="Take another choice of a meta-parameter that the kernel spec lists.",
            realise=realise,
            knob="choice",
        ),
    )
