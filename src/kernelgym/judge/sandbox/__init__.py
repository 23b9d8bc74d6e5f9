"""The trusted side of the sandbox: readable paths, and the tier that the host allows.

The room may import `judge.untrusted.sandbox`.
"""
