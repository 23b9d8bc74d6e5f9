"""Search: finds a faster kernel from one that is correct."""

from kernelgym_train.mcgs.search import optimize
from kernelgym_train.mcgs.settings import Budget

__all__ = ["Budget", "optimize"]
