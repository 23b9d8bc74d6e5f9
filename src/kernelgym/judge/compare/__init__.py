"""Comparison of a kernel's outputs with the reference's outputs.

The room may import the nouns of kernelgym and the judge's ground floor (its top-level modules
that tests/contract/test_rooms.py lists first).
"""
