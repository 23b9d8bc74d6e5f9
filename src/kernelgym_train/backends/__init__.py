"""One folder per trainer: sampling and the optimiser step, and nothing else.

The room may import kernelgym, `config`, `rollout`, `run` and `launch`; backends never import each
other.
"""
