"""Reads modules with Triton kernels: functions, launches, configurations, loops.

Imports nothing of the search.
"""
