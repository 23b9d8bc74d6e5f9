"""kernelgym's environments for verifiers, which finds them by this package's name."""

from kernelgym.adapters.verifiers import KernelEnvironment, KernelTaskset

__all__ = ["KernelEnvironment", "KernelTaskset"]
