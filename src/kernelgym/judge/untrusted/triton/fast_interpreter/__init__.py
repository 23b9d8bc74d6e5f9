"""Faster replacements for functions of Triton's interpreter, with the same results."""
