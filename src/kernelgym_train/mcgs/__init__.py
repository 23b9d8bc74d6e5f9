"""Search: finds a faster kernel from a correct one, and measures that it is faster.

The room may import `kernelgym` (of its judge, only the provenance) and `kernelgym_train.config`.
Only the command `kernelgym_train.cli` imports the room.
"""

from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.search import optimize, optimize_spec

__all__ = ["Budget", "SearchConfig", "optimize", "optimize_spec"]
