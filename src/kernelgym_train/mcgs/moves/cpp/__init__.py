"""Moves on C++ kernels, one file each; `kernelgym_train.mcgs.moves.table` lists them."""
