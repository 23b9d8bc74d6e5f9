"""What the stages of the demonstration on a GPU share: its folder, its judge, its problems.

::

    WORK/
      prepared.json, rows.npz, tokenizer/   the warm start's answers as ids, and the problems
      model/                                the warm-started model, in bfloat16
      runs/grpo, runs/control               run folders; the adapter is in model/
      verdicts.jsonl                        verdicts of evaluations
      right.json                            greedy answers that are to be timed
      state.json                            what each stage came to
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from benchmarks.learning.gpu_plan import OPERATORS, Plan
from kernelgym.judge import LocalEvaluator
from kernelgym.suites import synthetic
from kernelgym.types import Problem
from kernelgym_train import demo
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.demo.learning import RULES
from kernelgym_train.demo.splits import Scope, Splits, draw_splits
from kernelgym_train.demo.stages import warm_up
from kernelgym_train.models import load_tokenizer

READY = 3
"""Processes that each of the judge's workers keeps ready: a step's kernels come all at once."""
TABLES = ("compositions", "shapes", "unseen_operator")
WRITERS = ("corpus", "dialogue", "splits", "tokenizer")
"""Modules of the demonstration that decide what is asked and shown."""


class Work:
    """The folder that all stages share, and what they share of the machine.

    Args:
        folder: The folder; made if it is not there.
        plan: Sizes and numbers.
        device: Of the model and of the kernels.
        workers: Kernels judged at a time.
        say: Prints a line.
    """

    def __init__(
        self, folder: Path, plan: Plan, device: str, workers: int, say: Callable[[str], None]
    ) -> None:
        self.folder, self.plan, self.device, self.say = folder, plan, device, say
        self.workers = workers
        self._judge: LocalEvaluator | None = None
        self._warming: threading.Thread | None = None
        self._splits: Splits | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def judge(self) -> LocalEvaluator:
        """The judge of kernels, untimed; its workers are started when it is first asked for."""
        if self._judge is None:
            self._judge = LocalEvaluator(
                self.device, RULES, self.workers, timing=False, standby=READY
            )
        return self._judge

    @property
    def splits(self) -> Splits:
        """All problems, as they were listed."""
        if self._splits is None:
            scope = Scope(self.plan.listed, self.plan.chains, operators=OPERATORS)
            self._splits = draw_splits(self.plan.seed, scope)
        return self._splits

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the warm start."""
        return load_tokenizer(ModelConfig(id=str(self.folder / "tokenizer")))

    def problems(self, name: str) -> list[Problem]:
        """Return the problems of a part that `prepare` chose, in its order."""
        chosen = json.loads((self.folder / "prepared.json").read_text())["problems"][name]
        known = {problem.id: problem for problem in getattr(self.splits, name)}
        return [known[identity] for identity in chosen]

    def warm_up(self) -> None:
        """Have the judge's workers start while something else goes on."""
        self._warming = warm_up(self.judge)

    def wait_for_judge(self) -> None:
        """Wait until the workers have started, if they were asked to."""
        if self._warming is not None:
            self._warming.join()

    def close(self) -> None:
        """End the judge's processes."""
        if self._judge is not None:
            self._judge.close()

    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def prune(self, done: Container[str]) -> None:
        """Remove the checkpoints of runs that are done, and of others all but the last."""
        for run in self.folder.glob("runs/*"):
            saved = sorted(
                run.glob("checkpoints/checkpoint-*"), key=lambda at: int(at.name.rpartition("-")[2])
            )
            for path in saved if run.name in done else saved[:-1]:
                for file in sorted(path.rglob("*"), reverse=True):
                    file.rmdir() if file.is_dir() else file.unlink()
                path.rmdir()


def code_digest() -> str:
    """Return a digest of the code that questions and answers come from."""
    found = hashlib.sha256()
    suite, own = (Path(package.__file__ or "").parent for package in (synthetic, demo))
    for path in (*sorted(suite.glob("*.py")), *(own / f"{name}.py" for name in WRITERS)):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
