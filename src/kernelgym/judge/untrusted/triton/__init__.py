"""Triton inside a candidate: tools, interpreter, checks."""
