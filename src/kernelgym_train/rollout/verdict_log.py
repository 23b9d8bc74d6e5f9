"""`VerdictLog`: an evaluator whose verdicts are written to a file before any caller uses them.

Contract: that of `kernelgym.evaluators.kept`. A verdict is kept under problem, kernel, ruleset and
device, and appended to a file before it is given: a step that is played again after a kill gets the
same rewards, timed or not. Unlike the other files of a run this one is never cut back. An
`unavailable` verdict says nothing about the kernel and is not kept.

Inputs follow from the run's secret, so that two runs with one secret draw the same ones; a kernel
that is told its own seed learns no other's.

It never closes the evaluator it was given.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

from kernelgym.evaluators.kept import KeptVerdicts
from kernelgym.records.jsonlines import append_line, read_lines
from kernelgym.types import Evaluator, Job, Verdict

_NAMES = ("problem", "kernel", "ruleset", "device")


class VerdictLog(KeptVerdicts):
    """Keeps another evaluator's verdicts in a file of JSON lines.

    Args:
        evaluator: Judges the kernels whose verdicts are not in the file.
        path: The file; made when the first verdict is kept.
        secret: Secret that the seeds of inputs follow from; empty to leave them to the evaluator.
    """

    def __init__(self, evaluator: Evaluator, path: str | Path, *, secret: str = "") -> None:
        super().__init__(evaluator)
        self._path, self._secret = Path(path), secret
        self._known: dict[str, Verdict] = {}
        if self._path.exists():
            for _, row in read_lines(self._path):
                key = json.dumps([row[name] for name in _NAMES])
                self._known[key] = Verdict.from_dict(row["verdict"])

    def __len__(self) -> int:
        return len(self._known)

    def key(self, job: Job) -> str:
        """Return problem, kernel, ruleset and device of a job, as a list in JSON."""
        can, problem = self.capabilities, f"{job.problem.id}@{job.problem.digest}"
        return json.dumps([problem, job.kernel.digest, can.ruleset.label, can.device])

    def find(self, key: str) -> Verdict | None:
        """Return the verdict that was written under a key, or None."""
        return self._known.get(key)

    def keep(self, key: str, job: Job, verdict: Verdict) -> None:
        """Append a verdict to the file, unless it is `unavailable`."""
        if verdict.valid:
            row = dict(zip(_NAMES, json.loads(key), strict=True)) | {"verdict": verdict.to_dict()}
            append_line(self._path, row)
            self._known[key] = verdict

    def seed_of(self, job: Job) -> str:
        """Return the seed of a job's inputs: 32 hexadecimal digits, or none without a secret."""
        if not self._secret:
            return ""
        text = f"{job.problem.id}\0{job.problem.digest}\0{job.kernel.digest}"
        return hmac.new(self._secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]
