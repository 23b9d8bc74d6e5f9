"""Training on kernelgym: one rollout loop, credit per turn, and a backend for each trainer.

The nouns are in `kernelgym_train.types`, and what computes numbers (`credit`, `sampling`, `guards`)
needs numpy and no more, so that every backend trains on the same ones. Nothing is imported here;
kernelgym never imports this package.
"""

__all__ = ()
