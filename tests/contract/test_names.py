"""Class names: one public name, one class, over both packages."""

from __future__ import annotations

import ast
from collections import defaultdict

from support.source_tree import SOURCES, TRAIN_SOURCES, module_name, parsed


def places_by_name() -> dict[str, list[str]]:
    """Return the modules that define each public class at module level, by the class's name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (*SOURCES, *TRAIN_SOURCES):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module_name(path))
    return found


def test_public_class_name_is_used_once() -> None:
    twice = {name: files for name, files in places_by_name().items() if len(files) > 1}
    assert not twice, f"qualify one of each, as in EvalPlan: {twice}"
