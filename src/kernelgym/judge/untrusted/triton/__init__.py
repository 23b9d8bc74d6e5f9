"""Prepares Triton inside a candidate: tools, interpreter and bounds checks.

The room may import the standard library, torch, NumPy, Triton, and files of `judge/untrusted`, by
their names.
"""
