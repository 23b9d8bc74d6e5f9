"""The reference model: run, examined, remembered.

The room may import the nouns of kernelgym, the judge's ground floor (its top-level modules that
tests/contract/test_rooms.py lists first), `untrusted`, `inputs` and `compare`.
"""
