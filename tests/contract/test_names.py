"""Class names: one public name, one class, over both packages."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import kernelgym

ROOT = Path(kernelgym.__file__).parents[1]
KNOWN = {"Counts", "Key", "Plan", "Reference", "Region", "Request", "Sampling", "Stages"}
"""Names that two classes still bear. A name that is qualified leaves this set; none joins it."""


def places_by_name() -> dict[str, list[str]]:
    """Return the files that define each public class at module level, by the class's name."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in ("kernelgym", "kernelgym_train"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_public_class_name_is_used_once() -> None:
    twice = {name: files for name, files in places_by_name().items() if len(files) > 1}
    new = {name: files for name, files in twice.items() if name not in KNOWN}
    assert not new, f"qualify one of each, as in EvalPlan: {new}"
