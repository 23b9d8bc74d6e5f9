"""KernelBench's public inputs, drawn faster, bit for bit."""
