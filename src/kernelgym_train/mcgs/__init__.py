"""Search: finds a faster kernel from one that is correct."""

from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.search import optimize, optimize_spec

__all__ = ["Budget", "SearchConfig", "optimize", "optimize_spec"]
