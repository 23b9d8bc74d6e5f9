"""Evidence that custom kernels, not torch, did the work.

The room may import the nouns of kernelgym, `languages`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first), and `untrusted`, `compiling`, `processes`,
`compare`, `reference` and `session`.
"""
