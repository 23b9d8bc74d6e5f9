"""`ALGORITHMS`: search algorithms by name; each chooses the proposal that a search tries next."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym_train.mcgs.selection import Algorithm, at_random, best_first, mcgs
from kernelgym_train.mcgs.tuning import tpe

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "tpe": tpe,
        "best_first": best_first,
        "mcgs": mcgs,
        "random": at_random,
    }
)
"""Algorithms by the name that a user gives."""
NEEDS_OPTUNA = frozenset({"tpe"})
"""Names of the algorithms that need the package optuna."""
