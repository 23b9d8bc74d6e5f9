"""kernelgym's environments for verifiers, which finds them by this package's name."""

from kernelgym.adapters.verifiers import KernelRolloutEnvironment, KernelTaskset

__all__ = ["KernelRolloutEnvironment", "KernelTaskset"]
