"""One candidate process as a judge uses it: model, calls, windows.

The room may import the nouns of kernelgym, `languages`, the judge's ground floor (its top-level
modules that tests/contract/test_rooms.py lists first), and `sandbox`, `compiling`, `processes`,
`memory`, `device`, `inputs`, `compare` and `reference`.
"""
