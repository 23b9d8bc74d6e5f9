"""Kinds of prompts, by the names that configurations, plans and records use."""

from __future__ import annotations

from kernelgym.prompts.kernelbench import KernelBenchObserver
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.short import ShortObserver

PROMPTS: dict[str, type[Observer]] = {
    "full": Observer,
    "short": ShortObserver,
    "kernelbench": KernelBenchObserver,
}
"""Observer classes by the kind of prompts that they write."""
