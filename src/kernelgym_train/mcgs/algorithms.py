"""`ALGORITHMS`: how a search chooses what to try next, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym_train.mcgs.populations import anneal, beam, evolution
from kernelgym_train.mcgs.selection import Algorithm, at_random, best_first, mcgs
from kernelgym_train.mcgs.tuning import auto, tpe

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "auto": auto,
        "mcgs": mcgs,
        "best_first": best_first,
        "beam": beam,
        "anneal": anneal,
        "evolution": evolution,
        "random": at_random,
        "tpe": tpe,
    }
)
"""Algorithms by the name that a user gives."""
NEEDS_OPTUNA = frozenset({"auto", "tpe"})
"""Names of the algorithms that need the package optuna."""
