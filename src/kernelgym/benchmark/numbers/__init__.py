"""Statistics of episodes and verdicts: rates, speeds, failures and costs, with intervals.

May import what its parent may, `benchmark.run.generations`, and no pages.
"""
