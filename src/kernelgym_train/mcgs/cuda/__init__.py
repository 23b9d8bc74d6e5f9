"""Reads CUDA texts as syntax trees, for moves on CUDA kernels.

May import the syntax functions of `kernelgym_train.mcgs.cpp`, which read nodes of any grammar.
"""
