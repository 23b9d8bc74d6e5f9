"""Builds C++ and CUDA extensions for candidates, and runs the tools that Triton needs.

The room may import the nouns of kernelgym, `languages`, `answers`, `feedback`, the judge's ground
floor (its top-level modules that tests/contract/test_rooms.py lists first), `untrusted` and
`sandbox`.
"""
