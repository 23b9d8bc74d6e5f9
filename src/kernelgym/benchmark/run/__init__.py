"""Runs of `kernelgym eval`: options, plan, policies, the turn loop, and the run folder.

May import what its parent may, and `benchmark.kernelbench_folder`; no pages and no numbers.
"""
