"""Evaluators: no code guesses what one can do."""

from __future__ import annotations

import ast

from support.source_tree import SOURCES, TRAIN_SOURCES, parsed

PROBES = {"getattr", "hasattr"}
EVALUATORS = {"evaluator", "judge"}
"""Last words of the names that variables and attributes holding evaluators have."""


def test_no_evaluator_is_probed_for_attributes() -> None:
    """`capabilities`, `status` and `ability` say what an evaluator can do."""
    found = []
    for path in (*SOURCES, *TRAIN_SOURCES):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in PROBES and node.args:
                    name = ast.unparse(node.args[0]).rpartition(".")[2].lstrip("_")
                    if name.rpartition("_")[2] in EVALUATORS:
                        found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not found
