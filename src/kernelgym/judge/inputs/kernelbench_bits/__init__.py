"""KernelBench's public inputs, drawn faster but bit for bit the same."""
