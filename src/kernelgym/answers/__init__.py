"""Answers of models: the kernel is parsed from the text, and its source is screened.

The room may import the nouns and `languages`.
"""
