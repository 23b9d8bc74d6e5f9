"""Moves that a kernel spec adds: other values of its meta-parameters.

Contract: in a C++ kernel, each meta-parameter is one constant ``constexpr int NAME = VALUE;``, in a
Triton kernel a ``tl.constexpr`` parameter or an option of the launch. A value that the spec lists
replaces it; nothing is proposed if the text does not define it where it can be set. A spec does not
say whether a value changes the order of sums, so the risk is ``reassociates``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kernelgym.suites.spec import KernelSpec
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.moves.definition import Realisation, SearchMove
from kernelgym_train.mcgs.source_forms import meta_parameter
from kernelgym_train.mcgs.triton.knobs import knobs_of
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import Variant


def listed_choices(spec: KernelSpec | None) -> dict[str, tuple[int, ...]]:
    """Return the choices of the meta-parameters for which a spec lists several."""
    if spec is None:
        return {}
    return {name: choices for name, choices in spec.launch.meta.items() if len(choices) > 1}


def launch_choices(spec: KernelSpec | None, language: str) -> tuple[SearchMove, ...]:
    """Return the moves on a spec's meta-parameters.

    Args:
        spec: Kernel spec; without one there are no such moves.
        language: The kernel's language.
    """
    meta = listed_choices(spec)
    if spec is None or not meta:
        return ()

    def of_triton(variant: Variant) -> Iterator[Realisation]:
        module = read_module(variant.source)
        for knob in knobs_of(module):
            for choice in meta.get(knob.name, ()) if knob.literals or knob.calls else ():
                if choice != knob.value:
                    text = module.spliced(knob.edits(module, choice))
                    changed = dataclasses.replace(variant, source=text)
                    place = f"{knob.name} of {knob.function}"
                    yield Realisation(place, f"{knob.name}={choice}", changed, "reassociates")

    def of_extension(variant: Variant) -> Iterator[Realisation]:
        file = file_of(variant)
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
            realise=of_extension if spec.is_extension else of_triton,
        ),
    )
