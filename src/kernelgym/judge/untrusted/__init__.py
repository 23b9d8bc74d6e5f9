"""Everything that shares a process with a candidate, and nothing else.

Loaded by path; imports nothing of kernelgym.
"""
