"""Comparison of a kernel's outputs with the reference's."""
