"""The degeneracy gate: finds problems that a kernel can pass without doing the work.

The room may import the nouns of kernelgym, `suites`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first), and `untrusted`, `sandbox`, `inputs`,
`compare` and `reference`.
"""
