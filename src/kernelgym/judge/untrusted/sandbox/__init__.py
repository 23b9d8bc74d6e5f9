"""Builds the sandbox from inside the process that it confines.

The room may import the standard library and its own files.
"""
