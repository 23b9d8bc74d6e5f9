"""Moves on CUDA kernels, one file each.

Imports `kernelgym_train.mcgs.cuda`, `kernelgym_train.mcgs.cpp` and `kernelgym_train.mcgs.variant`.
"""
