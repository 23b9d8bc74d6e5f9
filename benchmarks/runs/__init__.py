"""Finished runs on a GPU: noise of speedups, KernelBench folders judged anew, baselines."""
