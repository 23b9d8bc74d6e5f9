"""One folder per trainer: sampling and the optimiser step, and nothing else."""

__all__ = ()
