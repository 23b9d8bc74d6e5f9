"""Inputs of judged calls: their seeds and kinds, and KernelBench's own inputs."""
