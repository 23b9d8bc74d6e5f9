"""Metrics over verdicts, and KernelBench's own terms for them."""
