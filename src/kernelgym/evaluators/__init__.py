"""Evaluators that wrap another evaluator, to cache its verdicts or to make it awaitable.

The room may import the nouns of kernelgym and `languages`; the judge builds on it, and it does
not know the judge.
"""
