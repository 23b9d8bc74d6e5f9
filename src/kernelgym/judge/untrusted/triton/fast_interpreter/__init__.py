"""Triton's interpreter, computing the same in less time."""
