"""From scores to advantages and weights.

The room may import kernelgym's nouns and `kernelgym_train.types`, and no framework.
"""
