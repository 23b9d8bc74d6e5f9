"""One training run on disk, step by step.

The room may import kernelgym, `config`, `credit`, `metrics` and `rollout`.
"""
