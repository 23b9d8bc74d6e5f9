"""Moves on C++ kernels, one file each."""
