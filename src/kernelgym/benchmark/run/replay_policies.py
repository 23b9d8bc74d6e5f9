"""Policies that answer from files: from kernelgym's runs or KernelBench's folders.

Contract: an answer that the files do not have is `AnswerMissing`: it counts as missing, and the
episode is cut. Replayed answers cost 0 US dollars. A folder is read once, before the run begins.

KernelBench's files are ``level_{L}_problem_{P}_sample_{S}_kernel.py``, one answer an episode. A
source is wrapped into an answer that `kernelgym.answers.parsing` reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym.answers.parsing import parse
from kernelgym.benchmark.kernelbench_folder import kernel_files, read_text
from kernelgym.benchmark.run.folder import GENERATIONS
from kernelgym.benchmark.run.generations import AnswerKey, AnswerRequest, Generation
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.benchmark.run.plan import PLAN_FILE, read_plan
from kernelgym.benchmark.run.policies import AnswerMissing, EvalPolicy
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import index_lines, line_at
from kernelgym.suites.base import problem_number

_TICKS = re.compile(r"`{3,}")


class ReplayPolicy(EvalPolicy):
    """Policy that repeats the answers of another run.

    Args:
        run: Folder of the other run.

    Raises:
        UsageError: If the folder is not a run, holds no answers, or a line is damaged.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / GENERATIONS
        self._plan = read_plan(run)
        self._answers = index_lines(self._path, AnswerKey.of)
        if not self._answers:
            raise UsageError(f"the run in {str(run)!r} holds no answers to replay")

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers: the other run's name, policy and time."""
        model = self._plan.policy.get("model", "")
        return {
            **{"kind": "replay", "model": model, "run": self._plan.name},
            **{"policy": dict(self._plan.policy), "created": self._plan.created},
        }

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return the recorded answer.

        Raises:
            AnswerMissing: If there is none.
            UsageError: If its line is damaged.
        """
        if (offset := self._answers.get(asked.key)) is None:
            raise AnswerMissing(f"the replayed run has no answer to {tuple(asked.key)}")
        try:
            found = Generation.from_dict(line_at(self._path, offset))
        except (KeyError, TypeError) as error:
            raise UsageError(f"{self._path}: the line of {tuple(asked.key)}: {error}") from None
        return dataclasses.replace(found, usd=0.0)


class FolderPolicy(EvalPolicy):
    """Policy that answers with the kernels of a folder of KernelBench's scripts.

    Args:
        folder: The folder.

    Raises:
        UsageError: If it holds no such kernels, or one that is not UTF-8 text.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = kernel_files(folder)
        if not files:
            raise UsageError(
                f"folder {str(folder)!r} is neither a run of ours ({PLAN_FILE}) nor one of "
                "KernelBench (level_1_problem_1_sample_0_kernel.py)"
            )
        self._sources = {
            key: read_text(file, "kernel").removeprefix("\ufeff") for key, file in files.items()
        }
        found = hashlib.sha256()
        for file in files.values():
            found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        self._digest = found.hexdigest()[:16]

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers: the digest of all kernels."""
        return {"kind": "folder", "model": self._folder.name, "digest": self._digest}

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return the answer that holds the folder's kernel.

        Raises:
            AnswerMissing: If there is none, or an episode's second answer is asked for.
        """
        number = problem_number(asked.problem)
        source = (
            None
            if asked.turn or number is None
            else self._sources.get((asked.problem.level, number, asked.sample))
        )
        if source is None:
            raise AnswerMissing(
                f"the folder has no kernel for {asked.problem.id}, sample {asked.sample}, turn "
                f"{asked.turn}"
            )
        return Generation(answer_of(source), model=self._folder.name, usd=0.0)


def answer_of(source: str) -> str:
    """Return an answer that holds a kernel's source."""
    ticks = max((len(found) for found in _TICKS.findall(source)), default=2) + 1
    fence = "`" * ticks
    whole = source if source.endswith("\n") else f"{source}\n"
    fenced = f"{fence}python\n{whole}{fence}\n"
    tagged = f"<KERNEL>\n{fenced}</KERNEL>\n"
    for text in (tagged, fenced):
        kernel = parse(text, "").kernel
        if kernel is not None and kernel.source.strip() == source.replace("\r\n", "\n").strip():
            return text
    return tagged


def make_replay(target: str, options: PolicyOptions) -> EvalPolicy:
    """Return the policy for ``--policy replay:RUN``.

    Raises:
        UsageError: If there is no such run, or an option was given.
    """
    options.refuse_others("replay")
    if not target:
        raise UsageError("policy 'replay' needs the folder of a run, as in replay:runs/first")
    return ReplayPolicy(Path(target))


def make_folder(target: str, options: PolicyOptions) -> EvalPolicy:
    """Return the policy for ``--policy folder:RUNS``, of ours or KernelBench's.

    Raises:
        UsageError: If there is no such folder, or an option was given.
    """
    options.refuse_others("folder")
    if not target:
        raise UsageError("policy 'folder' needs a folder of kernels, as in folder:runs/mine")
    folder = Path(target)
    return ReplayPolicy(folder) if (folder / PLAN_FILE).exists() else FolderPolicy(folder)
