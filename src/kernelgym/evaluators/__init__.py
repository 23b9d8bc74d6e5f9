"""What evaluators share: base classes, the dispatcher of many jobs, kept verdicts, duels.

The room may import the nouns of kernelgym and `languages`; the judge builds on it, and it does
not know the judge.
"""
