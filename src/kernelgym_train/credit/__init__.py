"""Credit: advantages and token weights from the scores of episodes.

The room may import kernelgym's nouns and `kernelgym_train.types`, and no framework.
"""
