"""Windows of both sides, and the speedup they give.

The room may import the nouns of kernelgym, `languages`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first), and `untrusted`, `processes`, `device`,
`inputs`, `reference` and `session`.
"""
