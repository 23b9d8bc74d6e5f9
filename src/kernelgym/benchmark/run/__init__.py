"""Runs of `kernelgym eval`, and the folders that keep them."""
