"""A run of ours from KernelBench's folder, and its verdicts.

Contract: `import_run` writes ``plan.json`` (kind ``import``), ``generations.jsonl`` and
``claims.jsonl``; importing the same folder again changes nothing, and another folder into the same
place is refused. `judge_import` adds verdicts to ``verdicts.jsonl`` as they come, goes on where it
stopped, judges `unavailable` ones anew, and writes ``trajectories.jsonl`` at the end. What was
claimed is kept apart and decides nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernelgym.answers.parsing import parse
from kernelgym.benchmark.baseline_files import entry_of, read_baselines
from kernelgym.benchmark.claims import CLAIMS_FILE, Claim
from kernelgym.benchmark.interchange.layout import KernelBenchFolder, Place
from kernelgym.errors import UnknownName, UsageError
from kernelgym.feedback import feedback
from kernelgym.records.jsonlines import append_line, read_lines, write_lines
from kernelgym.records.trajectories import EpisodeRecord, write_records
from kernelgym.rewards import reward_preset, score
from kernelgym.rulesets import Ruleset
from kernelgym.types import Job, Kernel, Problem, Reply, Trajectory, Turn, Verdict

__all__ = ["JudgeMany", "import_run", "judge_import"]

JudgeMany = Callable[[Sequence[Job]], Iterator[tuple[int, Verdict]]]
_REWARD = "sparse"
_SAME = ("kind", "problems", "level", "language", "ruleset", "device", "kernels")
_MOST_NAMED = 5
_ANEW = "remove it and import again, verdicts are kept; or give another --out"


def import_run(
    found: KernelBenchFolder,
    out: Path,
    *,
    language: str,
    rules: Ruleset,
    device: str = "cpu",
    problem_of: Callable[[str], Problem],
    gaps: bool = False,
    baseline: Path | None = None,
) -> int:
    """Write a run from KernelBench's folder; returns its number of kernels.

    Args:
        found: What the folder holds.
        out: Where the run is written.
        language: Of the kernels.
        rules: By which it will be judged.
        device: Where.
        problem_of: Gives a problem by its id.
        gaps: Take a folder in which samples are missing.
        baseline: File of baseline times, for the claimed speedups.

    Raises:
        UsageError: If a problem is not there, samples are missing, or `out` holds another run.
    """
    if found.gaps and not gaps:
        told = ", ".join(
            f"problem {p} has no sample {', '.join(map(str, s))}"
            for p, s in list(found.gaps.items())[:_MOST_NAMED]
        )
        raise UsageError(
            f"samples are missing in {found.path}: {told} ({len(found.gaps)} problems); take what "
            "is there with --gaps, or generate the rest"
        )
    problems = {
        number: _problem(found, number, problem_of)
        for number in dict.fromkeys(problem for problem, _ in found.kernels)
    }
    rows = [
        _row(problems[place[0]].id, place, source, language, found)
        for place, source in found.kernels.items()
    ]
    config = {k: v for k, v in found.config.items() if isinstance(v, str | int | float | bool)}
    plan = {
        "version": 1,
        "kind": "import",
        "name": out.resolve().name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernelgym": _version(),
        "policy": {"kind": "kernelbench", "model": config.get("model_name", ""), **config},
        "suite": "KernelBench",
        "level": found.level,
        "problems": [{"id": p.id, "digest": p.digest} for p in problems.values()],
        "samples": 1 + max(sample for _, sample in found.kernels),
        "turns": 1,
        "language": language,
        "ruleset": rules.label,
        "device": device,
        "reward": {"preset": _REWARD},
        "kernels": [Kernel(source, language).digest for source in found.kernels.values()],
    }
    _begin(out, plan)
    write_lines(out / "generations.jsonl", rows)
    if found.claims:
        claims = (_claim(found.claims[p], problems[p[0]], baseline) for p in found.claims)
        write_lines(out / CLAIMS_FILE, (claim.to_dict() for claim in claims))
    return len(rows)


def judge_import(
    out: Path,
    judge_many: JudgeMany,
    *,
    problem_of: Callable[[str], Problem],
    on_verdict: Callable[[], object] = lambda: None,
) -> int:
    """Judge what has no verdict; returns how many were judged.

    Args:
        out: The run's folder.
        judge_many: Judges jobs, by the rules and on the device of the plan.
        problem_of: Gives a problem by its id.
        on_verdict: Called for each verdict.

    Raises:
        UsageError: If the folder holds no import, or a problem has changed.
    """
    plan = _plan(out)
    digests = {row["id"]: row["digest"] for row in plan["problems"]}
    problems = {identity: problem_of(identity) for identity in digests}
    for identity, problem in problems.items():
        if problem.digest != digests[identity]:
            raise UsageError(
                f"problem {identity} has source {problem.digest} here, and was imported with "
                f"{digests[identity]}; use the checkout that it was imported with"
            )
    rows = [row for _, row in read_lines(out / "generations.jsonl")]
    kernels = [Kernel(_source(row, plan["language"]), plan["language"]) for row in rows]
    known = _verdicts(out / "verdicts.jsonl")
    there = [
        known.get((row["problem"], row["sample"], kernel.digest))
        for row, kernel in zip(rows, kernels, strict=True)
    ]
    places = [n for n, verdict in enumerate(there) if verdict is None or not verdict.valid]
    jobs = [Job(problems[rows[n]["problem"]], kernels[n]) for n in places]
    for index, verdict in judge_many(jobs):
        n = places[index]
        there[n] = verdict
        name = {key: rows[n][key] for key in ("problem", "sample", "turn")}
        told = {**name, "kernel_digest": kernels[n].digest, "verdict": verdict.to_dict()}
        append_line(out / "verdicts.jsonl", told)
        on_verdict()
    write_records(
        out / "trajectories.jsonl",
        (
            _record(plan, problems[row["problem"]], row, kernel, verdict)
            for row, kernel, verdict in zip(rows, kernels, there, strict=True)
            if verdict is not None
        ),
    )
    return len(jobs)


def _version() -> str:
    try:
        return version("kernelgym")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return ""


def _problem(
    found: KernelBenchFolder, number: int, problem_of: Callable[[str], Problem]
) -> Problem:
    try:
        return problem_of(f"KernelBench/L{found.level}/{number}")
    except UnknownName:
        raise UsageError(
            f"{found.path} holds a kernel of problem {number}, and level {found.level} has no such "
            "problem; is it of another level, or of another version of KernelBench?"
        ) from None


def _row(
    identity: str, place: Place, source: str, language: str, found: KernelBenchFolder
) -> dict[str, Any]:
    text = f"<KERNEL>\n```python\n{source}\n```\n</KERNEL>\n"
    row: dict[str, Any] = {"problem": identity, "sample": place[1], "turn": 0, "text": text}
    read = parse(text, language).kernel
    if read is None or read.source != source:
        row["kernel"] = source  # no form of an answer gives it back unchanged
    model = found.config.get("model_name")
    row |= {"finish_reason": "", "model": model if isinstance(model, str) else ""}
    if place in found.prompts:
        row["prompt"] = found.prompts[place]
    return row


def _source(row: Mapping[str, Any], language: str) -> str:
    if "kernel" in row:
        return str(row["kernel"])
    read = parse(row["text"], language).kernel
    return read.source if read is not None else str(row["text"])


def _claim(claim: Claim, problem: Problem, baseline: Path | None) -> Claim:
    reference = None
    if baseline is not None:
        entry = entry_of(read_baselines(baseline), problem)
        reference = float(entry["mean"]) if entry is not None else None
    return dataclasses.replace(claim, problem=problem.id, reference_ms=reference)


def _plan(out: Path) -> dict[str, Any]:
    """Return the plan of a run's folder.

    Raises:
        UsageError: If it cannot be read.
    """
    path = out / "plan.json"
    try:
        there = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {str(path)!r} ({error}); {_ANEW}") from None
    if not isinstance(there, dict):
        raise UsageError(f"{str(path)!r} holds no plan; {_ANEW}")
    return there


def _begin(out: Path, plan: Mapping[str, Any]) -> None:
    """Write the plan, or check the one that is there.

    Raises:
        UsageError: If another run lies there, or nothing can be written.
    """
    path = out / "plan.json"
    if path.exists():
        there = _plan(out)
        for name in _SAME:
            if there.get(name) != plan[name]:
                shown = "" if name in ("problems", "kernels") else f" ({there.get(name)})"
                raise UsageError(
                    f"{out} holds a run with other {name}{shown}; give another --out, or the same "
                    "options to go on"
                )
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plan, indent=2, default=str) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _verdicts(path: Path) -> dict[tuple[str, int, str], Verdict]:
    found: dict[tuple[str, int, str], Verdict] = {}
    if path.exists():
        for number, row in read_lines(path, on_cut=lambda _: None):
            try:
                key = row["problem"], row["sample"], row["kernel_digest"]
                found[key] = Verdict.from_dict(row["verdict"])
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"{path}, line {number}: not a verdict ({error})") from None
    return found


def _record(
    plan: Mapping[str, Any],
    problem: Problem,
    row: Mapping[str, Any],
    kernel: Kernel,
    verdict: Verdict,
) -> EpisodeRecord:
    reply = Reply(kernel)
    earned = score(reward_preset(_REWARD), reply, verdict, [])
    turn = Turn(0, row["text"], reply, verdict, feedback(verdict, reply), earned)
    ended = "solved" if verdict.correct else "budget" if verdict.valid else "cut"
    return EpisodeRecord(
        Trajectory(problem, (turn,), ended, 1),  # type: ignore[arg-type]
        language=plan["language"],
        device=plan["device"],
        ruleset=plan["ruleset"],
        reward=_REWARD,
        stop_when="correct",
        writer="import",
        key=f"{problem.id}#{row['sample']}",
    )
