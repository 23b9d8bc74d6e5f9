"""The trusted side's handles on the zygote and its candidates.

The room may import the nouns of kernelgym, `languages`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first), `untrusted` and `sandbox`.
"""
