"""What the command's tests share: a scripted judge, and files to judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelgym.cli import judging, main
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Verdict

Run = Callable[..., tuple[int, str, str]]


class Judge(ScriptedEvaluator):
    """A scripted evaluator that can be interrupted."""

    def evaluate(self, problem, kernel, *, seed: str = "") -> Verdict:  # type: ignore[no-untyped-def]
        if "# interrupt" in kernel.source:
            raise KeyboardInterrupt
        if "# judge breaks" in kernel.source:
            raise RuntimeError("the judge broke\nbadly")
        return super().evaluate(problem, kernel, seed=seed)


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> list[Judge]:
    """Put scripted judges in the place of real ones; returns those that were made."""
    made: list[Judge] = []
    real = judging.make_evaluator

    def make(device: str, ruleset: str, *options: Any) -> Judge:
        # Its errors are what a user sees.
        real(device, ruleset, *options).close()
        made.append(Judge(ruleset=ruleset, device=device))
        return made[-1]

    monkeypatch.setattr(judging, "make_evaluator", make)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; returns (exit code, stdout, stderr)."""

    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(item) for item in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a problem and kernels of each kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    source = SAMPLE_KERNELS["triton"].source
    files = {
        "problem.py": SAMPLE_PROBLEM.source,
        "nomodel.py": "def get_inputs(): return []\ndef get_init_inputs(): return []\n",
        "right.py": source,
        "right_cpp.py": SAMPLE_KERNELS["cpp"].source,
        "fast.py": f"{source}# verdict: correct 2.5\n",
        "wrong.py": f"{source}# verdict: wrong\n",
        "lost.py": f"{source}# verdict: unavailable\n",
        "refused.py": f"import ctypes\n{source}",
        "stop.py": f"{source}# interrupt\n",
        "broken_judge.py": f"{source}# judge breaks\n",
        "reply.txt": f"<think>so</think>\n<KERNEL>\n```python\n{source}```\n</KERNEL>\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    return tmp_path
