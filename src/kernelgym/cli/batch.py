"""``kernelgym check --batch``: judge many kernels of a JSONL file into a file of verdicts.

Contract:

- each row is written and flushed when its verdict comes, so a run that is killed loses only the
  kernels that were being judged; the next run judges those whose id is not in the output;
- at the end of a run the file is sorted into the order of the jobs, in one step, unless
  ``--unordered`` is given;
- a wrong job is refused with its line before anything is judged.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kernelgym.cli import judging
from kernelgym.cli.console import print_text
from kernelgym.cli.options import path_apart
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError
from kernelgym.judging_memory import memory_budget, parse_bytes
from kernelgym.pretrained import check_models
from kernelgym.records.jsonlines import write_lines
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.suites.known_memory import check_fits
from kernelgym.types import Job, Kernel, Problem, Verdict

if TYPE_CHECKING:
    from kernelgym.cli.check import CheckCommand

JobId = str | int


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One row of the jobs file, with its problem, kernel and rules."""

    id: JobId
    job: Job
    rules: Ruleset
    """Rules by which the job is judged: the row's ruleset and precision, or the command's. A kernel
    spec's tolerances replace theirs."""


def run_batch(options: CheckCommand) -> int:
    """Judge every job of the batch that has no row in the output yet; return the exit code.

    Raises:
        UsageError: If an argument, a job or a row that is there already cannot be used.
    """
    out_path = path_apart(options.out, options.batch)
    rules = precise_rules(options.ruleset, options.precision)
    budget = None  # a service refuses by its own
    if not options.evaluator:
        budget = memory_budget(parse_bytes(options.memory), options.device)
    jobs = read_jobs(
        Path(options.batch), options.language, options.device, rules, options.sizes, budget
    )
    with _opened(out_path) as out:
        rows = read_rows(out, out_path)
        _check_rows(rows, jobs, out_path)
        todo = [entry for entry in jobs if entry.id not in rows]
        counts: collections.Counter[str] = collections.Counter()
        with progress_bar("judging", len(todo)) as advance:
            for row in _judged(options, todo):
                advance()
                out.write(json.dumps(row) + "\n")
                out.flush()
                counts[row["status"]] += 1
                rows[row["id"]] = row
        wanted = [entry.id for entry in jobs]
        # A pipe or /dev/stdout has no order to change.
        if not options.unordered and list(rows) != wanted and out_path.is_file():
            write_lines(out_path.resolve(), (rows[job_id] for job_id in wanted))
    there = f" ({len(jobs) - len(todo)} more were judged before)" if len(jobs) > len(todo) else ""
    found = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print_text(f"judged {len(todo)} jobs{there}{f': {found}' if found else ''}; {out_path}")
    return 0


def verdict_row(entry: BatchJob, verdict: Verdict) -> dict[str, Any]:
    """Return the output row of one job: the verdict, and the digests of problem and kernel."""
    job = entry.job
    return {
        "id": entry.id,
        "problem": job.problem.id,
        "problem_digest": job.problem.digest,
        "kernel_digest": job.kernel.digest,
        "language": job.kernel.language,
    } | verdict.to_dict()


def read_jobs(
    path: Path,
    language: str,
    device: str,
    rules: Ruleset,
    sizes: str = "full",
    memory_bytes: int | None = None,
) -> list[BatchJob]:
    """Read a jobs file and everything that it names.

    Args:
        path: The jobs file.
        language: Language of rows without one.
        device: Device on which kernels will run.
        rules: Rules of rows without a ruleset.
        sizes: Sizes of KernelBench's problems in rows without sizes.
        memory_bytes: Memory budget, which no problem may exceed; None for no limit.

    Raises:
        UsageError: At the first line that cannot be used.
    """
    # Not `splitlines`: JSON text may hold line separators other than the newline.
    lines = judging.read_text(path, "jobs file").split("\n")
    problems: dict[tuple[str, str], Problem] = {}
    own: dict[tuple[str, Ruleset], Ruleset] = {}
    seen: dict[JobId, int] = {}
    jobs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _job(line, path.parent, language, device, rules, sizes, problems, own)
            if memory_bytes is not None:  # else a service judges, which has models of its own
                check_models(entry.job.problem)
            check_fits(entry.job.problem, memory_bytes, device)
            if entry.id in seen:
                raise UsageError(f"id {entry.id!r} is on line {seen[entry.id]} already")
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        seen[entry.id] = number
        jobs.append(entry)
    if not jobs:
        raise UsageError(f"jobs file {str(path)!r} holds no jobs; write one JSON object per line")
    return jobs


def _job(
    line: str,
    folder: Path,
    language: str,
    device: str,
    rules: Ruleset,
    sizes: str,
    problems: dict[tuple[str, str], Problem],
    own: dict[tuple[str, Ruleset], Ruleset],
) -> BatchJob:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON ({error})") from None
    if not isinstance(row, dict):
        raise UsageError("a job is a JSON object with id, problem and kernel")
    given = row.get("id")
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        raise UsageError(f"'id' must be text or a whole number, got {json.dumps(given)}")
    for name in ("problem", "kernel"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise UsageError(
                f"{name!r} must be {'an id or ' if name == 'problem' else ''}a path, "
                f"got {json.dumps(row.get(name))}"
            )
    chosen = row.get("language") or language
    judging.check_tools(chosen, device)
    named = str(row["problem"]), row.get("sizes") or sizes
    if not isinstance(named[1], str):
        raise UsageError(f"'sizes' must be full or small, got {json.dumps(named[1])}")
    if named not in problems:
        problems[named] = judging.problem_at(named[0], folder, named[1])
    source = judging.read_text(folder / row["kernel"], "kernel file")
    job = Job(problems[named], Kernel(source, chosen))
    asked = named[0], _rules_of(row, rules)
    if asked not in own:
        own[asked] = judging.rules_at(asked[0], asked[1], folder)
    return BatchJob(given, job, own[asked])


def _rules_of(row: Mapping[str, Any], rules: Ruleset) -> Ruleset:
    for name in ("ruleset", "precision"):
        if not isinstance(row.get(name, ""), str):
            raise UsageError(f"{name!r} must be a name, got {json.dumps(row[name])}")
    if row.get("ruleset"):
        return precise_rules(row["ruleset"], row.get("precision", ""))
    return precise_rules(rules, row.get("precision", ""))


def read_rows(out: IO[str], path: Path) -> dict[JobId, dict[str, Any]]:
    """Return the rows of an output file by id, and move to their end in the file.

    An incomplete last line, which a killed process leaves behind, is removed.

    Raises:
        UsageError: If another line is not a verdict row.
    """
    rows: dict[JobId, dict[str, Any]] = {}
    out.seek(0)
    lines = re.findall(r"[^\n]*\n|[^\n]+", out.read())
    whole = 0
    for number, line in enumerate(lines, 1):
        row = _row(line)
        if row is None and number == len(lines) and _is_cut(line):
            break
        if row is None and line.strip():
            raise UsageError(
                f"{path}, line {number}: not a verdict row; repair or remove it, or give another "
                "--out"
            )
        if row is not None:
            rows[row["id"]] = row
        whole += len(line.encode("utf-8", "surrogateescape"))
    out.seek(whole)
    out.truncate()
    return rows


def _is_cut(line: str) -> bool:
    """Return True if a line is the cut-off beginning of a verdict row; False for any other line."""
    head = '{"id": '
    return not line.endswith("\n") and line[: len(head)] == head[: len(line)]


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line) if line.endswith("\n") else None
    except (ValueError, RecursionError):
        return None
    sound = isinstance(row, dict) and isinstance(row.get("id"), str | int) and "status" in row
    return row if sound else None


def _check_rows(
    rows: Mapping[JobId, Mapping[str, Any]], jobs: Sequence[BatchJob], path: Path
) -> None:
    """Refuse to resume a file whose rows belong to other jobs or rules."""
    known = {entry.id: entry for entry in jobs}
    for row_id, row in rows.items():
        where = f"{path} holds a verdict for job {row_id!r}"
        if row_id not in known:
            raise UsageError(f"{where}, which is not among the jobs; give another --out")
        label = known[row_id].rules.label
        if row.get("ruleset", label) != label:
            raise UsageError(
                f"{where} under ruleset {row['ruleset']!r}, and this run's is {label!r}; give "
                "another --out, since verdicts under different rules cannot be compared"
            )
        job = known[row_id].job
        digests = {"problem_digest": job.problem.digest, "kernel_digest": job.kernel.digest}
        for name, now in digests.items():
            if row.get(name, now) != now:
                raise UsageError(
                    f"{where}, but its {name.partition('_')[0]} has changed since; give the job "
                    "another id, remove the row, or give another --out"
                )


def _judged(options: CheckCommand, todo: Sequence[BatchJob]) -> Iterator[dict[str, Any]]:
    """Yield the rows of jobs in the order of their verdicts, ruleset by ruleset."""
    groups: dict[Ruleset, list[BatchJob]] = {}
    for entry in todo:
        groups.setdefault(entry.rules, []).append(entry)
    for rules, group in groups.items():
        with judging.open_evaluator(
            options.device,
            rules,
            options.workers,
            not options.no_timing,
            options.memory,
            options.verdict_cache,
            options.evaluator,
        ) as evaluator:
            for index, verdict in judging.judge_many(evaluator, [entry.job for entry in group]):
                yield verdict_row(group[index], verdict)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open an output file for reading and appending, locked against other processes."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
    with open(descriptor, "r+", encoding="utf-8", errors="surrogateescape", newline="") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{str(path)!r} is being written by another run; wait for it, or give another --out"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield out
