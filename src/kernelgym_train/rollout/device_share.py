"""Keeps a model's work on a GPU apart from the timing of kernels on that GPU.

A kernel timed while the model samples or learns beside it is refused its time (`device_shared`).
So the trainer holds the judge's device lock around each generation and each optimiser step, and
never while it waits for a verdict. On another device than the judge's it takes no lock.

Independent of the backend: `DeviceHold` is told when the model works.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelgym.devices import check_device
from kernelgym.judge import device_lock
from kernelgym_train.rollout.play import BatchPolicy
from kernelgym_train.types import Completion, SampleRequest


class DeviceHold:
    """Holds the device lock while the model works on the judge's device.

    Args:
        model: The model's device, such as ``cuda:0`` or ``cpu``.
        judge: The device on which kernels are judged; ``all`` for every GPU.
        lock: Function that returns the lock of a device.
        settle: Waits until what the model launched on a device has ended; torch's if None.
    """

    def __init__(
        self,
        model: str = "cpu",
        judge: str = "cpu",
        *,
        lock: Callable[[str], contextlib.AbstractContextManager[Any]] = device_lock,
        settle: Callable[[str], object] | None = None,
    ) -> None:
        shared = model != "cpu" and (judge == "all" or check_device(model) == check_device(judge))
        self._device = check_device(model) if shared else ""
        self._lock, self._settle = lock, _synchronise if settle is None else settle
        self._held: contextlib.ExitStack | None = None

    def take(self) -> None:
        """Take the device lock, unless it is held already or not needed."""
        if self._device and self._held is None:
            held = contextlib.ExitStack()
            held.enter_context(self._lock(self._device))
            self._held = held

    def release(self) -> None:
        """Release the device lock once the model's launched work has ended, if it is held."""
        if self._held is None:
            return
        held, self._held = self._held, None
        with held:
            self._settle(self._device)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the device lock during the block."""
        self.take()
        try:
            yield
        finally:
            self.release()


class SharingPolicy:
    """A batch policy whose generations hold the device lock, and whose time is measured.

    Args:
        policy: The policy.
        share: Holder of the device lock.
        during: Context of each generation, such as what a run says it is doing.
    """

    def __init__(
        self,
        policy: BatchPolicy,
        share: DeviceHold,
        during: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._policy, self._share, self._during = policy, share, during
        self.seconds = 0.0
        """Seconds of all generations."""

    def generate(self, requests: Sequence[SampleRequest]) -> Sequence[Completion]:
        """Return one completion per request, in their order."""
        with self._during(), self._share.held():
            started = time.monotonic()
            try:
                return self._policy.generate(requests)
            finally:
                self.seconds += time.monotonic() - started


def _synchronise(device: str) -> None:
    import torch

    torch.cuda.synchronize(device)
