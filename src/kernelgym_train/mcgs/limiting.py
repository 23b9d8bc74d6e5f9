"""Bottlenecks of a state, from counters or its text, and the family of its kernel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgym_train.mcgs.bottleneck_priors import (
    estimated,
    estimated_of_cuda,
    family_of_cuda,
    family_of_module,
)
from kernelgym_train.mcgs.cpp.cost import cost_of, family_of
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.cuda.text import read_cuda
from kernelgym_train.mcgs.source_forms import holds_cpp, holds_cuda, is_script
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import Variant


def shares_of(state: SearchState, key: str) -> Mapping[str, float]:
    """Return the share of each bottleneck of a state, such as memory or latency; empty if unknown.

    By counters of the state or of the nearest state that it was made from. Without any, it is
    estimated from the text of a Triton or CUDA kernel; of C++ it is not known.
    """
    profile = _profile_of(state, key)
    if profile is not None:
        return dict(profile["bottlenecks"])
    variant = state.variants[key]
    if holds_cuda(variant.language, variant.source):
        return estimated_of_cuda(read_cuda(file_of(variant).cpp), state.floor_share)
    if not is_script(variant.language, variant.source):
        return {}
    return estimated(read_module(variant.source), state.floor_share)


def family_of_variant(variant: Variant) -> str:
    """Return the family of a variant's kernel, such as ``product``; else its language."""
    language, source = variant.language, variant.source
    if holds_cpp(language, source):
        return family_of(cost_of(file_of(variant).cpp))
    if holds_cuda(language, source):
        return family_of_cuda(read_cuda(file_of(variant).cpp))
    return family_of_module(read_module(source)) if is_script(language, source) else language


def share_source(state: SearchState, key: str) -> str:
    """Return the origin of a state's bottleneck shares: ``ncu``, ``text``, or empty for none."""
    if _profile_of(state, key) is not None:
        return "ncu"
    return "text" if shares_of(state, key) else ""


def _profile_of(state: SearchState, key: str) -> Mapping[str, Any] | None:
    nodes = state.graph.nodes
    while key in nodes:
        profile = state.profiles.get(key)
        if profile is not None and profile["status"] == "measured":
            return profile
        if not nodes[key].parents:
            break
        key = nodes[key].parents[0]
    return None
