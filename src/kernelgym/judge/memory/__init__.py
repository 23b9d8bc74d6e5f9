"""Memory that both sides of a verdict map.

The room may import the nouns of kernelgym, the judge's ground floor (its top-level modules that
tests/contract/test_rooms.py lists first), `untrusted` and `processes`.
"""
