"""Training runs as a whole: their parts made from settings, the dry run, memory, start and end.

The room may import every other room of `kernelgym_train` but `demo`, `adapters` and `mcgs`, and all
of `kernelgym`. It knows backends by `kernelgym_train.backends.backend` only.
"""
