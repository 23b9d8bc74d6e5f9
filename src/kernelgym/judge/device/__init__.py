"""One device of this machine: its lock, health, bandwidth and memory budget.

The room may import the nouns of kernelgym, `suites`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first) and `memory`.
"""
