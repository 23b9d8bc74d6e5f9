"""Kernels that a model, a command or a recording writes for a search."""
