"""Moves on Triton kernels, one file each.

Imports `kernelgym_train.mcgs.triton` and `kernelgym_train.mcgs.variant`.
"""
