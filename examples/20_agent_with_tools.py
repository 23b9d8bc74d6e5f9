"""Play a scripted agent that works on a problem with tools: check, time, submit.

    python examples/20_agent_with_tools.py

A coding agent would run in the folder `work` instead. Needs `pip install 'kernelgym[serve]'`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import broken_variants, solve

PROBLEM = "Synthetic/L1/2"


def tool(name: str) -> None:
    """Call a tool as an agent does, and print the first line of what it says."""
    told = subprocess.run(["work/kernelgym-tools", name], capture_output=True, text=True)
    print(f"{name}: {(told.stdout + told.stderr).splitlines()[0]}")


command = [sys.executable, "-m", "kernelgym", "workspace", PROBLEM, "--language", "cpp"]
judge = subprocess.Popen(
    [*command, "--out", "work", "--budget", "3"],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
)
try:
    told = judge.stderr.readline() if judge.stderr else ""
    if "is ready" not in told:
        raise SystemExit(told.strip())  # why there is no workspace
    problem, kernel = get_problem(PROBLEM), Path("work/kernel.py")
    kernel.write_text(broken_variants(problem, "cpp", 0)[0].kernel.source)
    tool("check")
    kernel.write_text(solve(problem, "cpp", 0).source)
    tool("check")
    tool("time")
    tool("submit")
    print(judge.communicate()[0].strip())
finally:
    judge.terminate()
    judge.communicate()
