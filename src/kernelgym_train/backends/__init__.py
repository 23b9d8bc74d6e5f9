"""One module per trainer: sampling and the optimiser step, and nothing else."""

__all__ = ()
