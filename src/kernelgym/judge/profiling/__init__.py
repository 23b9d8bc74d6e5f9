"""Reads a GPU's hardware counters while a kernel runs, by NVIDIA Nsight Compute in a sandbox."""
