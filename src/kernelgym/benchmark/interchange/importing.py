"""Imports: runs made from a folder of KernelBench's scripts, and their verdicts.

Contract: `import_run` writes ``plan.json`` (kind ``import``), ``generations.jsonl`` and
``claims.jsonl``, all of them or none; importing the same folder again changes nothing, and another
folder into the same place is refused. `judge_import` adds verdicts to ``verdicts.jsonl`` as they
come, continues where it stopped, judges `unavailable` ones again, and writes
``trajectories.jsonl`` at the end. Claims are kept apart from verdicts and decide nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelgym.benchmark.baseline_files import entry_of, read_baselines
from kernelgym.benchmark.claims import CLAIMS_FILE, Claim
from kernelgym.benchmark.kernelbench_folder import KernelBenchFolder, Place
from kernelgym.benchmark.run.folder import GENERATIONS, TRAJECTORIES, VERDICTS
from kernelgym.benchmark.run.generations import AnswerKey, recorded_verdict
from kernelgym.benchmark.run.plan import (
    PLAN_FILE,
    EvalPlan,
    check_continues,
    episode_key,
    read_plan,
    write_plan,
)
from kernelgym.benchmark.run.plan_from_options import problems_of
from kernelgym.errors import UnknownName, UsageError
from kernelgym.feedback import feedback
from kernelgym.machine import installed_version
from kernelgym.records.jsonlines import append_line, read_lines, write_lines
from kernelgym.records.trajectories import EpisodeRecord, write_records
from kernelgym.rewards import reward_preset, score
from kernelgym.rulesets import precise_rules
from kernelgym.suites import get_problem
from kernelgym.types import Job, Kernel, Problem, Reply, Status, Trajectory, Turn, Verdict

JudgeMany = Callable[[Sequence[Job]], Iterator[tuple[int, Verdict]]]
_REWARD = "sparse"
_MOST_NAMED = 5


def import_run(
    found: KernelBenchFolder,
    out: Path,
    *,
    language: str,
    ruleset: str = "strict",
    precision: str = "",
    device: str = "cpu",
    sizes: str = "full",
    timing: bool = True,
    gaps: bool = False,
    baseline: Path | None = None,
) -> int:
    """Write a run from KernelBench's folder; return its number of kernels.

    Args:
        found: Contents of the folder.
        out: Folder of the run that is written.
        language: Language of the kernels.
        ruleset: Name of the ruleset by which they will be judged.
        precision: Precision in place of the ruleset's; empty for its own.
        device: Device on which they will be judged.
        sizes: Sizes of the problems: full or small.
        timing: Whether correct kernels will be timed.
        gaps: Accept a folder in which samples are missing.
        baseline: File of baseline times, from which claimed speedups are computed.

    Raises:
        UsageError: If the level has no such problem, samples are missing, the folder names other
            sizes, or `out` holds another run.
    """
    if found.gaps and not gaps:
        told = ", ".join(
            f"problem {p} has no sample {', '.join(map(str, s))}"
            for p, s in list(found.gaps.items())[:_MOST_NAMED]
        )
        raise UsageError(
            f"samples are missing in {found.path}: {told} ({len(found.gaps)} problems); accept "
            "the folder as it is with --gaps, or generate the rest"
        )
    _check_sizes(found, sizes)
    numbers = dict.fromkeys(problem for problem, _ in found.kernels)
    problems = {number: _problem(found, number, sizes) for number in numbers}
    config = {k: v for k, v in found.config.items() if isinstance(v, str | int | float | bool)}
    digests = ":".join(Kernel(source, language).digest for source in found.kernels.values())
    plan = EvalPlan(
        kind="import",
        name=out.resolve().name,
        policy={
            "kind": "kernelbench",
            "model": str(config.get("model_name", "")),
            **config,
            "kernels": hashlib.sha256(digests.encode()).hexdigest()[:16],
        },
        suite="KernelBench",
        sizes=sizes,
        problems=tuple((problem.id, problem.digest) for problem in problems.values()),
        samples=1 + max(sample for _, sample in found.kernels),
        language=language,
        ruleset=precise_rules(ruleset, precision).label,
        precision=precision,
        device=device,
        timing=timing,
        reward=_REWARD,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kernelgym=installed_version("kernelgym"),
    )
    if (out / PLAN_FILE).exists():
        check_continues(read_plan(out), plan, out)
    times = {} if baseline is None else read_baselines(baseline)[0]
    for number in dict.fromkeys(number for number, _ in found.claims if number not in problems):
        problems[number] = _problem(found, number, sizes)
    claims = [_claim(found.claims[p], problems[p[0]], times) for p in found.claims]
    try:
        with _draft_of(out) as draft:
            rows = (_row(problems[place[0]].id, place, found) for place in found.kernels)
            count = write_lines(draft / GENERATIONS, rows)
            if claims:
                write_lines(draft / CLAIMS_FILE, (claim.to_dict() for claim in claims))
            if not (out / PLAN_FILE).exists():
                write_plan(draft, plan)
    except OSError as error:
        raise UsageError(f"cannot write in {str(out)!r}: {error.strerror}") from None
    return count


@contextlib.contextmanager
def _draft_of(folder: Path) -> Iterator[Path]:
    """Yield a new folder for an import; its files move into `folder` if all could be written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        yield draft
        folder.mkdir(exist_ok=True)
        # The plan comes last: without it a folder is not a run.
        for file in sorted(draft.iterdir(), key=lambda each: each.name == PLAN_FILE):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(draft)


def judge_import(
    out: Path, judge_many: JudgeMany, *, on_verdict: Callable[[], object] = lambda: None
) -> int:
    """Judge the kernels of an import that have no verdict; return how many were judged.

    Args:
        out: Folder of the run.
        judge_many: Judge of many kernels, by the rules and on the device of the plan.
        on_verdict: Function that is called for each verdict.

    Raises:
        UsageError: If the folder holds no import, or a problem has changed.
    """
    plan = read_plan(out)
    problems = {problem.id: problem for problem in problems_of(plan)}
    rows = [row for _, row in read_lines(out / GENERATIONS)]
    kernels = [Kernel(row["kernel"], plan.language) for row in rows]
    known: dict[AnswerKey, tuple[str, Verdict]] = {}
    if (out / VERDICTS).exists():
        for number, row in read_lines(out / VERDICTS, on_cut=lambda _: None):
            known[AnswerKey.of(row)] = recorded_verdict(row, f"{out / VERDICTS}, line {number}")
    there: list[Verdict | None] = []
    for row, kernel in zip(rows, kernels, strict=True):
        digest, verdict = known.get(AnswerKey.of(row), ("", None))
        if verdict is None and not kernel.source.strip():
            why = "the kernel's file is empty"
            verdict = Verdict(Status.NO_KERNEL, message=why, ruleset=plan.ruleset)
            digest = kernel.digest
            _keep(out, row, kernel, verdict)
        there.append(verdict if digest == kernel.digest else None)
    places = [n for n, verdict in enumerate(there) if verdict is None or not verdict.valid]
    jobs = [Job(problems[rows[n]["problem"]], kernels[n]) for n in places]
    for index, verdict in judge_many(jobs):
        n = places[index]
        there[n] = verdict
        _keep(out, rows[n], kernels[n], verdict)
        on_verdict()
    write_records(
        out / TRAJECTORIES,
        (
            _record(plan, problems[row["problem"]], row, kernel, verdict)
            for row, kernel, verdict in zip(rows, kernels, there, strict=True)
            if verdict is not None
        ),
    )
    return len(jobs)


def _keep(out: Path, row: Mapping[str, Any], kernel: Kernel, verdict: Verdict) -> None:
    told = {"kernel_digest": kernel.digest, "verdict": verdict.to_dict()}
    append_line(out / VERDICTS, AnswerKey.of(row).to_dict() | told)


def _check_sizes(found: KernelBenchFolder, sizes: str) -> None:
    """Refuse sizes that are not those which an export of kernelgym names.

    Raises:
        UsageError: If they differ.
    """
    named = {str(found.config.get("kernelgym_sizes", sizes))}
    named |= {str(claim.metadata.get("kernelgym_sizes", sizes)) for claim in found.claims.values()}
    if other := sorted(named - {sizes}):
        raise UsageError(
            f"{found.path} holds kernels for the problems in {other[0]} size, and --sizes is "
            f"{sizes}; give --sizes {other[0]}"
        )


def _problem(found: KernelBenchFolder, number: int, sizes: str) -> Problem:
    try:
        return get_problem(f"KernelBench/L{found.level}/{number}", sizes)
    except UnknownName:
        raise UsageError(
            f"{found.path} holds a kernel of problem {number}, and level {found.level} has no such "
            "problem; is it of another level, or of another version of KernelBench?"
        ) from None


def _row(identity: str, place: Place, found: KernelBenchFolder) -> dict[str, Any]:
    source = found.kernels[place]
    row: dict[str, Any] = {
        "problem": identity,
        "sample": place[1],
        "turn": 0,
        "text": f"<KERNEL>\n```python\n{source}\n```\n</KERNEL>\n",
        "kernel": source,  # an answer's text need not give every source back unchanged
        "finish_reason": "",
        "model": str(found.config.get("model_name", "")),
    }
    if place in found.prompts:
        row["prompt"] = found.prompts[place]
    return row


def _claim(claim: Claim, problem: Problem, baselines: Mapping[str, Any]) -> Claim:
    mean = (entry_of(baselines, problem) or {}).get("mean")
    reference = float(mean) if isinstance(mean, int | float) else None
    return dataclasses.replace(claim, problem=problem.id, reference_ms=reference)


def _record(
    plan: EvalPlan, problem: Problem, row: dict[str, Any], kernel: Kernel, verdict: Verdict
) -> EpisodeRecord:
    reply = Reply(kernel) if kernel.source.strip() else Reply(None, defects=("no_answer",))
    earned = score(reward_preset(_REWARD), reply, verdict, [])
    turn = Turn(0, row["text"], reply, verdict, feedback(verdict, reply), earned)
    ended = "solved" if verdict.correct else "budget" if verdict.valid else "cut"
    return EpisodeRecord(
        Trajectory(problem, (turn,), ended, 1),  # type: ignore[arg-type]
        language=plan.language,
        device=plan.device,
        ruleset=plan.ruleset,
        reward=_REWARD,
        stop_when="correct",
        writer=plan.kind,
        key=episode_key(problem.id, row["sample"]),
    )
