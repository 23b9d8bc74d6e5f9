"""Faster replacements for functions of Triton's interpreter, with the same results.

The room may import what `judge/untrusted/triton` may import.
"""
