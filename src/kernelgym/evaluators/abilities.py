"""Optional abilities of an evaluator, each a protocol.

An evaluator is asked for one where the object is taken in, by ``evaluator.ability(Builds)``, which
returns an object with these methods or None. `isinstance` would not see through a wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from kernelgym.counters import Counters
from kernelgym.types import Build, Kernel, Problem, Verdict


@runtime_checkable
class Builds(Protocol):
    """Builds kernels without judging them."""

    def build(self, kernel: Kernel) -> Build | None:
        """Build a kernel's extensions and return what the compilers made of them.

        Args:
            kernel: The kernel. Its module is loaded, and none of its functions is called.

        Returns:
            The build; None if the kernel builds no extension, does not compile or load, or the
            judge failed.
        """

    def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> Mapping[str, bytes]:
        """Return the files that were built for a kernel, by name; empty if none are cached.

        Args:
            kernel: A kernel that this evaluator has judged or built.
            assembly: Whether to return the disassembly of each library as well, if possible.
        """


@runtime_checkable
class Duels(Protocol):
    """Times several kernels alternately while it holds the device."""

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        """Judge kernels of one problem in fresh processes, with alternating timing windows.

        Outputs are verified as for full verdicts. Evidence that custom kernels did the work is not
        gathered: accept no kernel on rounds alone, but judge it with `evaluate`, too.

        Args:
            problem: The problem that all kernels solve.
            kernels: Two kernels or more; the first one begins.
            seed: Seed of the inputs, as for `kernelgym.types.Evaluator.evaluate`.

        Returns:
            One verdict per kernel, in their order, whose `Timing.turn_ms` can be compared; None if
            full verdicts have to decide.
        """


@runtime_checkable
class Profiles(Protocol):
    """Reads hardware counters while a kernel runs."""

    def profile(
        self,
        problem: Problem,
        kernel: Kernel,
        *,
        metrics: Sequence[str] = (),
        timeout_s: float = 120.0,
    ) -> Counters:
        """Return the counters of one call of a kernel that this evaluator found correct.

        The call has random inputs of the problem's shapes. No kernel is timed on the device
        meanwhile.

        Args:
            problem: The problem.
            kernel: The kernel.
            metrics: Metrics to read; `kernelgym.counters.METRICS` if empty.
            timeout_s: Seconds that the profile may take.

        Raises:
            UsageError: If this evaluator has not found the kernel correct.
        """
