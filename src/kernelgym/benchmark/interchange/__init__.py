"""Imports from KernelBench's scripts, and exports for them and as Hugging Face datasets.

May import all of `kernelgym.benchmark`.
"""
