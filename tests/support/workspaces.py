"""Workspaces in tests: sessions with a scripted judge, and the command in a process of its own."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.testing import verdict as scripted
from kernelgym.types import Problem
from kernelgym.workspace.session import ToolSession

KERNELGYM = (sys.executable, "-m", "kernelgym")
RIGHT = SAMPLE_KERNELS["cpp"].source


def marked(status: str, speedup: float | None = None) -> str:
    """Return a kernel on which a scripted judge gives this verdict."""
    return f"{RIGHT}# verdict: {status}{'' if speedup is None else f' {speedup}'}\n"


def untimed() -> ScriptedEvaluator:
    """Return a judge of correctness alone."""

    def judge(problem: Any, kernel: Any) -> Any:
        for status in ("wrong", "unavailable"):
            if f"# verdict: {status}" in kernel.source:
                return scripted(status, message="scripted")
        return scripted("correct")

    return ScriptedEvaluator(judge, timed=False)


def session(folder: Path, budget: int = 3, **given: Any) -> ToolSession:
    """Return a session of the sample problem; its trajectory goes to ``t.jsonl`` in a folder."""
    options: dict[str, Any] = {
        "untimed": untimed(),
        "timed": ScriptedEvaluator(),
        "language": "cpp",
        "budget": budget,
        "record": folder / "t.jsonl",
    }
    return ToolSession(SAMPLE_PROBLEM, **(options | given))


def recorded(path: Path) -> EpisodeRecord:
    """Return the one record of a file."""
    (record,) = read_records(path)
    return record


@contextlib.contextmanager
def working(out: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``kernelgym workspace`` until its folder is ready; it is killed at the block's end."""
    command = [*KERNELGYM, "workspace", *arguments, "--language", "cpp", "--out", str(out)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes)
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        assert "is ready" in told, told + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def tool(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Call a workspace's tools as an agent does."""
    command = [sys.executable, str(folder / "kernelgym-tools"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def place(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the address of a workspace's server, and the header with its key."""
    found = json.loads((folder / "workspace.json").read_text())
    return found["url"], {"Authorization": f"Bearer {found['key']}"}


def wait_until(is_so: Any) -> None:
    """Wait until a function returns True."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def decoy(problem: Problem) -> str:
    """Return an exploit: torch computes, and a kernel of no use is built and launched beside it."""
    source = re.sub(r"\bModel\b", "ModelNew", problem.source).partition("def get_inputs")[0]
    extension = """
from torch.utils.cpp_extension import load_inline

_noop = load_inline(
    name="noop",
    cpp_sources="torch::Tensor noop(torch::Tensor x) { x.data_ptr<float>()[0] += 0.0f; return x; }",
    functions=["noop"],
)


class _Reference(ModelNew):
    pass


class ModelNew(_Reference):
    def forward(self, *inputs):
        _noop.noop(torch.zeros(1))
        return super().forward(*inputs)
"""
    return f"{source}{extension}"
