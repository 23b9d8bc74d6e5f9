"""Prompts: the problem, worked examples, earlier turns, and what parts such as retrieval add.

The room may import the nouns (the modules of `kernelgym` itself) and `languages`.
"""
