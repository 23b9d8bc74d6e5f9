"""The worker's view of its device, the CPU or one CUDA device.

It holds the device lock and the memory budget, checks that the device still computes and that no
other program keeps it busy, and measures its bandwidth.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import secrets
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kernelgym.devices import CONTEXT_BYTES, named_by_uuid
from kernelgym.errors import JudgeError, ProblemError
from kernelgym.file_lock import Turns
from kernelgym.judge.device.lock import DeviceLock, lock_name
from kernelgym.judge.device.memory_shares import MemoryBudget, usable_bytes
from kernelgym.judge.device.recent_kills import RecentKills
from kernelgym.judge.memory.arena import new_arena
from kernelgym.judge.problem_code import input_bytes, output_bytes
from kernelgym.judge.sandbox.paths import other_gpus
from kernelgym.judge.stage_clock import StageClock
from kernelgym.judging_memory import judging_bytes, kernel_bytes
from kernelgym.pretrained import judged_bytes
from kernelgym.starting_kernel import starting_kernel
from kernelgym.suites.known_memory import needed_bytes, too_large
from kernelgym.types import Problem

_COPIES = 8
_CACHED_BYTES = 256 << 10
_DEVICE_COPY_BYTES = 1 << 30
_PROBED_BYTES, _PROBES, _PROBE_PAUSE_S = 256 << 20, 5, 0.02
_PROBE_COPIES = 64  # longer than the time slice that the driver gives one of several processes
# Part of the measured bandwidth that a free device reaches at least: a copy of 256 MiB is a little
# slower than one of 1 GiB; a second process at work halves the rate.
_FULL_PACE = 0.75
_COUNTED = 1025
# The driver makes one context at a time. With two turns, one candidate is forked meanwhile.
_MADE_AT_ONCE = 2
_KEPT_BYTES = 2 << 30
_SCARCE_OF = 4  # memory is scarce if less than a quarter of it is free
_SHARED_PATIENCE_S, _SHARED_POLL_S = 2.0, 0.05
_OWN_LOOKS, _LOOKS_APART_S = 3, 1.0


class DeviceLost(JudgeError):
    """The device no longer computes for this process."""


class Accelerator:
    """The device on which a worker judges: its lock, its memory budget, and checks of its state.

    Args:
        name: ``cpu`` or a name like ``cuda:0``.
        folder: Cache folder that all workers share.
        called: The caller's name for the device, used in messages; `name` if empty.
        spare_contexts: Processes on standby on this device beyond one for each worker.
        memory_bytes: Most memory that judging one kernel may take; 0 sets no limit but a GPU's own.

    Raises:
        JudgeError: If the device cannot be used.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        called: str = "",
        spare_contexts: int = 0,
        memory_bytes: int = 0,
    ) -> None:
        self.device, self._called = torch.device(name), called or name
        self._memory_bytes = memory_bytes
        self._contexts_bytes = spare_contexts * CONTEXT_BYTES
        self.on_cuda = self.device.type == "cuda"
        self.capability: tuple[int, int] | None = None
        """Compute capability; None on the CPU."""
        self.visible = ""
        """Value of CUDA_VISIBLE_DEVICES that shows a process this GPU only; empty on the CPU."""
        self.other_gpus: tuple[str, ...] = ()
        """Paths of the device files of the machine's other GPUs, which a kernel judged on this GPU
        must not open; empty if the driver does not tell which file is whose, and on the CPU."""
        self._bandwidth = 0.0
        self._trial: Any = None
        self._counted: torch.Tensor | None = None
        self._memory_budget: MemoryBudget | None = None
        self._holds_room = False
        self.is_alone = False
        """Whether this worker holds all of the device's memory."""
        if self.on_cuda:
            try:
                torch.cuda.set_device(self.device)
                self.canary()
            except (RuntimeError, AssertionError, DeviceLost) as error:
                raise JudgeError(f"device {self._called} cannot be used: {error}") from None
        owner = lock_name(name)
        if self.on_cuda:
            properties = torch.cuda.get_device_properties(self.device)
            self.capability = (properties.major, properties.minor)
            uuid = str(properties.uuid)
            self.visible, self.other_gpus = named_by_uuid(name, uuid), other_gpus(uuid)
            # Contexts of processes on standby take memory, too.
            usable = usable_bytes(int(properties.total_memory))
            self._memory_budget = MemoryBudget(folder, owner, usable - self._contexts_bytes)
        self.clock = StageClock()
        """Clock that counts the current verdict's wall time by stage."""
        self.device_lock = DeviceLock(folder / f"{owner}.lock", self.clock)
        self.recent_kills = RecentKills(folder, owner)
        self.making = Turns(folder, f"{owner}.making", _MADE_AT_ONCE)
        """Turns at forking processes and making their contexts ahead of need, per device."""
        self._again = Turns(folder, f"{owner}.again", 1)

    def check_room(self, problem: Problem) -> None:
        """Check that the memory budget and the device can hold a problem's judging.

        Where a problem's sizes are not known, its inputs alone are counted, without drawing them;
        of one that loads pretrained weights the outputs too, without loading them.

        Raises:
            ProblemError: If they do not.
        """
        if self.device.type == "cpu" and not self._memory_bytes:
            return
        needed = needed_bytes(problem) or judging_bytes(input_bytes(problem))
        if weights := judged_bytes(problem):
            called = judging_bytes(input_bytes(problem), output_bytes(problem), weights)
            needed = max(needed, called)
        if 0 < self._memory_bytes < needed:
            raise ProblemError(too_large(problem.id, needed, self._memory_bytes, self._called))
        if self.device.type == "cpu":
            return
        there = torch.cuda.get_device_properties(self.device).total_memory - self._contexts_bytes
        if needed > there:
            raise ProblemError(
                f"problem {problem.id!r} takes at least {needed / 1e9:.1f} GB on device "
                f"{self._called!r}, which has {there / 1e9:.1f} GB for it; choose a smaller "
                "problem, a larger device or fewer processes that stand ready"
            )

    def holds(self, problem: Problem, kernels: int) -> bool:
        """Return True if the device's memory can hold several kernels of a problem at once."""
        if self._memory_budget is None:
            return True
        return self._size(problem, kernels) <= self._memory_budget.total_bytes

    def room(self, problem: Problem, kernels: int = 1) -> contextlib.AbstractContextManager[None]:
        """Wait for memory for kernels that are judged together, and hold it during the block.

        Does nothing on the CPU, which has no memory budget.

        Args:
            problem: The kernels' problem.
            kernels: Number of kernels.
        """
        if self._memory_budget is None or self._holds_room:
            # A worker that asked for memory twice would wait for itself for ever.
            return contextlib.nullcontext()
        return self._hold(self._memory_budget.taken(self._size(problem, kernels)))

    @staticmethod
    def _size(problem: Problem, kernels: int) -> int:
        """Return the bytes that kernels of a problem and its reference take together."""
        kernels += starting_kernel(problem) is not None  # in a process of its own
        size = kernel_bytes(input_bytes(problem), output_bytes(problem), kernels)
        return size + kernels * judged_bytes(problem)

    def between_timings(self) -> contextlib.AbstractContextManager[None]:
        """Keep all workers from timing on a CUDA device during the block.

        For making and ending contexts and for giving memory back, which would slow a timed call
        down. Does nothing on the CPU, where these take too little time to disturb one.
        """
        return self.device_lock.shared() if self.on_cuda else contextlib.nullcontext()

    @contextlib.contextmanager
    def quiet(self, patience_s: float) -> Iterator[bool]:
        """Hold the device lock alone; yields True if the device is idle.

        While the device is busy with other work, this releases the lock and tries again: a halted
        kernel's launches will end, and another program may end.

        Args:
            patience_s: Seconds to wait for the launches of halted kernels. The wait begins anew
                when a kernel is killed, and lasts at most three times as long. Without a halted
                kernel, `patience_s` counts as two seconds at most.
        """
        first = begun = math.inf
        looks = 0
        while True:
            with self.device_lock.exclusive():
                now = time.monotonic()
                # While this worker looks at the device, all others wait and their deadlines run
                # on. After its own first looks, those of all workers are therefore 1 s apart.
                if (
                    looks < _OWN_LOOKS
                    or self.device_lock.since_device_blocked_s() >= _LOOKS_APART_S
                ):
                    ours, looks = self.is_ours(), looks + 1
                    if not ours:
                        self.device_lock.note_device_blocked(time.monotonic() - now)
                else:
                    ours = False
                first = min(first, now)
                killed = time.monotonic() - max(0.0, time.time() - self.recent_kills.latest())
                begun = min(max(first, killed), first + 2 * patience_s)
                limit_s = patience_s if self.device_lock.is_halfway() else _SHARED_PATIENCE_S
                if ours or time.monotonic() > begun + min(limit_s, patience_s):
                    yield ours
                    return
            pause_s = (
                0.0
                if looks < _OWN_LOOKS
                else _LOOKS_APART_S - self.device_lock.since_device_blocked_s()
            )
            with self.clock.stage("queue"):
                time.sleep(max(_SHARED_POLL_S, pause_s))

    @contextlib.contextmanager
    def second_chance(self, patience_s: float) -> Iterator[None]:
        """Retry a timed-out kernel, in the block, while it is undisturbed.

        The block starts when no other retry runs and the device is idle. After `patience_s` it
        starts anyway: a kernel that blocked others must not block the retry too.

        Args:
            patience_s: Seconds to wait for an idle device.
        """
        deadline = time.monotonic() + patience_s
        while True:
            with self._again.taken() as is_mine:
                if (is_mine and not self.is_kept_busy()) or time.monotonic() > deadline:
                    yield
                    return
            with self.clock.stage("queue"):
                time.sleep(_LOOKS_APART_S)

    def is_kept_busy(self) -> bool:
        """Return True if the device is busy though no candidate runs."""
        with self.device_lock.exclusive():
            return not self.is_ours()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other worker holds device memory; hold the whole budget in the block."""
        assert self._memory_budget is not None and not self._holds_room
        gc.collect()  # the exception of a failed attempt may keep tensors alive
        with self.between_timings():
            torch.cuda.empty_cache()
        with self._hold(self._memory_budget.taken(self._memory_budget.total_bytes)):
            self.is_alone = True
            try:
                yield
            finally:
                self.is_alone = False

    @property
    def shares_device(self) -> bool:
        """Whether other workers may use the device's memory at the same time."""
        return self._memory_budget is not None and not self.is_alone

    @contextlib.contextmanager
    def _hold(self, room: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        with self.clock.waiting(room):
            self._holds_room = True
            try:
                yield
            finally:
                self._holds_room = False

    def canary(self) -> None:
        """Check that the device still computes: a small sum must come out right.

        Raises:
            DeviceLost: If it does not: this process has lost its context.
        """
        if self.device.type == "cpu":
            return
        try:
            if self._counted is None:  # allocated once: a full device must not pass for a lost one
                self._counted = torch.empty(_COUNTED + 1, dtype=torch.int64, device=self.device)
            numbers, sum_of_them = self._counted.split([_COUNTED, 1])
            first = secrets.randbelow(1 << 20)  # random, so that a stale sum is a wrong one
            torch.arange(first, first + _COUNTED, out=numbers)
            total = int(torch.sum(numbers, dim=0, keepdim=True, out=sum_of_them).item())
        except RuntimeError as error:
            raise DeviceLost(f"the device fails after this kernel: {error}") from None
        if total != sum(range(first, first + _COUNTED)):
            raise DeviceLost("the device computes wrong sums after this kernel")

    def trial_memory(self) -> str:
        """Return the handle of a little device memory; empty on the CPU.

        A trial candidate opens it, to find out whether its sandbox lets it use the device.
        """
        if self.device.type == "cpu":
            return ""
        if self._trial is None:
            self._trial = new_arena(0, 1, self.device)
        fields, _ = self._trial.handle()
        return str(fields["memory"])

    def floor_ms(self, moved_bytes: int) -> float:
        """Return the smallest number of milliseconds in which the device can move `moved_bytes`.

        On a CUDA device this uses the bandwidth of its memory, on the CPU that of its caches: the
        data of a timed call may still lie there.
        """
        if not self._bandwidth:
            self._bandwidth = self._measure_bandwidth()
        return moved_bytes / self._bandwidth * 1e3

    def is_ours(self) -> bool:
        """Return True if no other program uses a CUDA device: a copy then runs at full pace.

        The caller holds the device lock alone, so no
        candidate runs. Always True on the CPU.
        """
        if not self.on_cuda:
            return True
        self.floor_ms(0)  # measures the bandwidth if that is not known yet
        most_ms = 2 * _PROBED_BYTES / self._bandwidth * 1e3 / _FULL_PACE
        for _ in range(_PROBES):
            # The mean, not the least: processes take turns, and a copy within this process's turn
            # is as fast as on an idle device.
            if statistics.fmean(self._copy_ms(_PROBED_BYTES, _PROBE_COPIES)) < most_ms:
                return True
            time.sleep(_PROBE_PAUSE_S)
        return False

    def _copy_ms(self, size: int, times: int) -> list[float]:
        source = torch.zeros(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
        marks[0].record()
        for mark in marks[1:]:
            target.copy_(source)
            mark.record()
        self.finish()
        return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]

    def _measure_bandwidth(self) -> float:
        """Return the highest rate of a copy, in bytes read and written per second."""
        if self.device.type == "cpu":
            source = torch.zeros(_CACHED_BYTES, dtype=torch.uint8)
            target = torch.empty_like(source)
            shortest_s = float("inf")
            for _ in range(_COPIES):
                started = time.perf_counter()
                target.copy_(source)
                shortest_s = min(shortest_s, time.perf_counter() - started)
            return float(2 * _CACHED_BYTES * torch.get_num_threads() / shortest_s)
        free, _ = torch.cuda.mem_get_info(self.device)
        size = min(_DEVICE_COPY_BYTES, free // 8)
        shortest_ms = min(self._copy_ms(size, _COPIES))
        return float(2 * size / (shortest_ms / 1e3))

    def tidy(self) -> None:
        """Return torch's cached memory to the device, if it exceeds 2 GiB.

        Other workers may need it.
        """
        if self.is_untidy():
            torch.cuda.empty_cache()

    def make_room(self) -> None:
        """Return torch's cached memory to the device, if less than a quarter of it is free.

        Otherwise candidates, which are other processes, run out of memory.
        """
        if self.is_untidy():
            free, total = torch.cuda.mem_get_info(self.device)
            if free < total // _SCARCE_OF:
                torch.cuda.empty_cache()

    def is_untidy(self) -> bool:
        """Return True if torch caches more than 2 GiB unused."""
        if not self.on_cuda:
            return False
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(kept) > _KEPT_BYTES

    def finish(self) -> None:
        """Wait until the device has finished this process's work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
