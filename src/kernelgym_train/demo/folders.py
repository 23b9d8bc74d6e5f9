"""Problems of the demonstration as folders of files, which any run can use as a suite.

Contract: `problems/practice/` holds the problems that are trained on, and `problems/<table>/` each
held-out table: a file for each problem in `level1/` or `level2/`, byte for byte the source that the
demonstration plays, so that digests are the same. The folder is written whole or not at all.

Such a folder is no part of the Synthetic suite: ids are the folder's (`practice/L2/67_abs_sum`),
families are unknown, and sizes are found by running each reference on torch's ``meta`` device.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelgym.types import Problem

PRACTICE = "practice"
"""Name of the folder with the problems that the model is trained on."""


def write_problems(folder: Path, folders: Mapping[str, Sequence[Problem]]) -> None:
    """Write problems as folders of files; do nothing if the target folder exists already.

    Args:
        folder: Target folder, such as ``runs/demo/problems``.
        folders: Problems by the name of their folder, which is not made for an empty list; names
            of problems are unique within a level.
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
