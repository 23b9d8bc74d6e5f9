"""Measures references and devices in processes of their own.

The room may import the nouns of kernelgym, `suites`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first), and `sandbox`, `device`, `inputs` and
`timing`.
"""
