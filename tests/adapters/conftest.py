"""Tests of an adapter run where its framework is: in the environment that `environments.py` makes.

There, KERNELGYM_FRAMEWORK names the adapter's extra; elsewhere these tests are deselected.
"""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = os.environ.get("KERNELGYM_FRAMEWORK", "")
    elsewhere = [
        item
        for item in items
        if (mark := item.get_closest_marker("framework")) is not None and mark.args != (here,)
    ]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if item not in elsewhere]
