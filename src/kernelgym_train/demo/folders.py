"""The demonstration's problems as folders, suites of any run.

Contract: `problems/practice/` holds what is trained on, and `problems/<table>/` each held-out
table: a file a problem in `level1/`, `level2/`, byte for byte the source that the demonstration
plays, so that digests are the same. The folder appears whole or not at all.

Such a folder is no part of the Synthetic suite: ids are the folder's (`practice/L2/67_abs_sum`),
families are not told, and sizes are found by running each reference on torch's ``meta`` device.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelgym.types import Problem

PRACTICE = "practice"
"""Name of the folder of problems that are trained on."""


def write_problems(folder: Path, folders: Mapping[str, Sequence[Problem]]) -> None:
    """Write folders of problems, unless they are there already.

    Args:
        folder: Where they go, such as ``runs/demo/problems``.
        folders: Problems by the name of their folder, which is not made if there is none; names are
            unique within a level.
    """
    if folder.exists():
        return
    made = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(made, ignore_errors=True)  # an interrupted run left it
    for name, problems in folders.items():
        for problem in problems:
            path = made / name / f"level{problem.level}" / f"{problem.name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(problem.source, encoding="utf-8", newline="")
    made.replace(folder)
