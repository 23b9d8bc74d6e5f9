"""Runs from and for KernelBench's scripts, and as Hugging Face datasets."""
