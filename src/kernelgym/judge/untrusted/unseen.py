"""What the judge does in a candidate's process out of reach of the candidate's Python code.

torch's functions in Python look up torch's native ones at every call, where a kernel can replace
them, and modes that a kernel leaves on see every operator. So the native functions are taken here,
before any candidate code runs, and `Unseen` hides the judge's own operators from modes.

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
_Event = torch.cuda.Event
# None without CUDA.
_record: Any = getattr(_native._CudaEventBase, "record", None)
_elapsed: Any = getattr(_native._CudaEventBase, "elapsed_time", None)
_sleep: Any = getattr(_native, "_cuda_sleep", None)
_finish: Any = getattr(_native, "_cuda_synchronize", None)
_current_stream = torch.cuda.current_stream
_LEAD_CYCLES = 600_000  # about 0.3 ms


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


class Clock:
    """The clock of this process's current CUDA device, read before and after calls.

    Make it before any candidate code is loaded.
    """

    def __init__(self) -> None:
        self._began, self._ended = (_Event(enable_timing=True) for _ in range(2))

    def begin(self, lead: bool) -> None:
        """Note the time on the current stream.

        Args:
            lead: Whether the device waits before, so that the launch of the first call by the host
                is not part of the time.
        """
        self._stream = _current_stream()
        if lead:
            _sleep(_LEAD_CYCLES)
        _record(self._began, self._stream)

    def end(self) -> None:
        """Note the time on the same stream, and wait for all of the process's work."""
        _record(self._ended, self._stream)
        self.finish()

    def finish(self) -> None:
        """Wait until the device has finished all work of this process."""
        _finish()

    def delay(self, cycles: int) -> None:
        """Have the current stream sleep."""
        _sleep(cycles)

    @property
    def ms(self) -> float:
        """Milliseconds between the two times."""
        return float(_elapsed(self._began, self._ended))
