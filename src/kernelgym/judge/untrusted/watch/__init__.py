"""Records what a watched call does: launches, torch operators, host memory.

The room may import the standard library, torch, and files of `judge/untrusted`, by their names.
"""
