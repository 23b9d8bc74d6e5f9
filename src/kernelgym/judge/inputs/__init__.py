"""Inputs of judged calls: their seeds and kinds, and KernelBench's own inputs.

The room may import the nouns of kernelgym and the judge's ground floor (its top-level modules
that tests/contract/test_rooms.py lists first).
"""
