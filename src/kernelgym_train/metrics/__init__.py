"""Metrics of a training step, and the guards that watch them.

The room may import kernelgym, `kernelgym_train.types` and `credit`.
"""
