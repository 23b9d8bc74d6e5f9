"""Gymnasium environments, single and vector, their wrappers, and drivers for asynchronous callers.

The room may import all rooms but `benchmark`, `adapters`, `serve` and `cli`; it imports the judge
only when an environment without an evaluator judges its first kernel.
"""
