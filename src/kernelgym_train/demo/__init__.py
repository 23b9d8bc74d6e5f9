"""The learning demonstration: its problems, what the warm start reads, and its tokens.

Contract: everything here follows from a seed, without a model, a judge or a GPU. Nothing is trained
here.
"""

__all__ = ()
