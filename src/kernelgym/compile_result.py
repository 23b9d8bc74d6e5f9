"""Result of compiling a kernel for a GPU that need not be there, without running it on one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompileResult:
    """What a compiler makes of a kernel. It is not a verdict: nothing ran on a GPU."""

    launches: int
    """Number of launches compiled, which differ in function, types or constants; or of extensions,
    for a language whose kernels are built."""
    complaints: tuple[str, ...]
    """Complaints of the compiler, with lines of the kernel's module; and how the kernel failed
    where it could not be run as far as its launches."""

    @property
    def compiled(self) -> bool:
        """Whether there were launches, and every one compiled."""
        return self.launches > 0 and not self.complaints
