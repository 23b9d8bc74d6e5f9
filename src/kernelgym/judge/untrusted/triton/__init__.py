"""Prepares Triton inside a candidate: tools, interpreter and bounds checks."""
