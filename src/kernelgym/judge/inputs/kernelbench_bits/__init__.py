"""KernelBench's public inputs, drawn faster but bit for bit the same.

The room may import the rooms that `judge.inputs` may import.
"""
