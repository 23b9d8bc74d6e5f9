"""Moves: changes of a kernel that keep its results, one file each, by language.

Imports `kernelgym_train.mcgs.cpp` and `kernelgym_train.mcgs.variant`.
"""
