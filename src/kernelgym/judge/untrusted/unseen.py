"""What the judge does in a candidate's process out of reach of the candidate's Python code.

Modes that a kernel leaves on see every operator of its thread, the judge's own included, and may
leave it out. `Unseen` hides operators from them. Python's secret random numbers come from a
function that a kernel can replace, so `below` takes the system's before any candidate code runs.

Loaded by path in the untrusted process: torch only.
"""

from __future__ import annotations

import os
from typing import Any

import torch

_native: Any = torch._C
_urandom = os.urandom
_no_modes, _no_functions = _native._DisableTorchDispatch, _native.DisableTorchFunction
_modes, _function_modes = _native._len_torch_dispatch_stack, _native._len_torch_function_stack


def below(count: int) -> int:
    """Return a secret random number from 0 to `count` - 1."""
    return int.from_bytes(_urandom(8), "little") % count


class Unseen:
    """Hides operators from modes that a kernel has left on, while it is entered."""

    def __enter__(self) -> None:
        # Entering both takes longer than the copy of a small output, which is timed.
        self._guards = (_no_modes(), _no_functions()) if _modes() or _function_modes() else ()
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *error: Any) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*error)
