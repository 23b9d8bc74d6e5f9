"""KernelBench folders of the conformance kernels, imported, judged by both rulesets, reported.

Claims are what KernelBench itself said of the same kernels (`benchmarks/results`). The cases that
need cut sizes are left out, since a folder's problems have their real ones, and so are those that
hang: they hold the device for a minute each.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import Case, load_cases
from benchmarks.runs.shows import Show
from kernelgym.benchmark import report
from kernelgym.benchmark.interchange.importing import import_run, judge_import
from kernelgym.benchmark.kernelbench_folder import read_folder
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.cli.judging import check_tools, judge_many
from kernelgym.errors import KernelgymError
from kernelgym.judge import LocalEvaluator
from kernelgym.suites.base import problem_number
from kernelgym.types import Job, Verdict

__all__ = ["judge_imports", "write_folders", "write_import"]

Folder = tuple[str, int, Path]
"""Language, level, and the folder in KernelBench's layout."""


def write_folders(show: Show) -> list[Folder]:
    """Write the cases as KernelBench's scripts leave kernels; one folder a language and level."""
    claims: dict[str, Any] = {}
    if show.choice.claims.is_file():
        recorded = json.loads(show.choice.claims.read_text("utf-8"))
        hardware = recorded["machine"].get("hardware", "")
        for row in recorded["cases"]:
            if (pair := row["kernelbench"]["pair"]) is not None:
                claims[row["case"]] = {
                    "compiled": pair[0],
                    "correctness": pair[1],
                    "metadata": {"hardware": hardware, "case": row["case"]},
                    "runtime": -1.0,
                    "runtime_stats": {},
                }
    groups: dict[tuple[str, int], dict[int, list[Case]]] = {}
    for case in load_cases(show.choice.kernels):
        if case.sizes or case.outcome == "timeout":
            continue
        problem = show.suite.get(case.problem)
        number = problem_number(problem)
        assert number is not None
        group = groups.setdefault((case.kernel.language, problem.level), {})
        group.setdefault(number, []).append(case)
    folders = []
    for (language, level), numbers in sorted(groups.items()):
        folder = show.work / "kernelbench" / f"{language}_level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        results: dict[str, list[dict[str, Any]]] = {}
        for number, cases in sorted(numbers.items()):
            for sample, case in enumerate(cases):
                name = f"level_{level}_problem_{number}_sample_{sample}_kernel.py"
                (folder / name).write_text(case.kernel.source, "utf-8")
                if case.name in claims:
                    entry = {"sample_id": sample, **claims[case.name]}
                    results.setdefault(str(number), []).append(entry)
        (folder / "eval_results.json").write_text(json.dumps(results, indent=1), "utf-8")
        folders.append((language, level, folder))
    return folders


def judge_imports(
    show: Show, evaluator: LocalEvaluator, folders: Sequence[Folder], share: float
) -> None:
    """Import the folders, and judge them until a share of the time has passed."""
    name = evaluator.capabilities.ruleset.name

    def in_time(jobs: Sequence[Job]) -> Iterator[tuple[int, Verdict]]:
        if show.left(share) <= 0:
            return
        for found in judge_many(evaluator, jobs):
            yield found
            if show.left(share) <= 0:
                return

    for language, level, folder in folders:
        run = show.work / "runs" / f"{name}_{folder.name}"
        try:
            check_tools(language, show.device)
            read = read_folder(folder, level)
            count = import_run(
                *(read, run),
                language=language,
                ruleset=evaluator.capabilities.ruleset.name,
                device=show.device,
                gaps=True,
            )
            (run / "machine.json").write_text(json.dumps(show.machine))
            judged = judge_import(run, in_time)
        except KernelgymError as error:
            show.say(f"import, {name}, {folder.name}: {error}")
            (show.work / f"why_not_{run.name}.txt").write_text(str(error))
            continue
        show.say(f"import, {name}, {folder.name}: {count} kernels, {judged} judged now")


def write_import(show: Show, folders: Sequence[Folder]) -> None:
    """Report what is judged: a page for each ruleset, counts of agreement in one file."""
    pages = show.out / "pages"
    pages.mkdir(exist_ok=True)
    data: dict[str, Any] = {"claims_from": show.choice.claims.name, "rulesets": {}, "not_run": []}
    statuses: dict[str, dict[tuple[str, str, int], str]] = {}
    data["not_run"] = [
        f"{path.stem.removeprefix('why_not_')}: {path.read_text()}"
        for path in sorted(show.work.glob("why_not_*.txt"))
    ]
    for ruleset in ("kernelbench", "strict"):
        runs = [show.work / "runs" / f"{ruleset}_{folder.name}" for *_, folder in folders]
        there = [run for run in runs if (run / "verdicts.jsonl").exists()]
        told: collections.Counter[str] = collections.Counter()
        claimed: collections.Counter[str] = collections.Counter()
        disagreements, tables = [], {}
        statuses[ruleset] = {}
        for run in there:
            found = report(run, html=pages / f"{run.name}.html")
            (numbers,) = found.to_dict()["runs"]
            tables[run.name] = numbers["tables"]["all problems"]
            for episode in read_run(run).episodes:
                verdict = episode.turns[-1].verdict
                told[verdict.status.value] += 1
                place = (run.name.removeprefix(f"{ruleset}_"), *episode.key)
                statuses[ruleset][place] = verdict.status.value
            for claim in numbers.get("claims", ()):
                differs = claim["differs"]
                claimed[_agreement(differs)] += 1
                if _agreement(differs) == "disagree":
                    disagreements.append({"run": run.name, **claim})
        data["rulesets"][ruleset] = {
            "kernels": sum(told.values()),
            "statuses": dict(sorted(told.items())),
            "claims": dict(sorted(claimed.items())),
            "disagreements": disagreements,
            "tables": tables,
        }
    loose, strict = statuses["kernelbench"], statuses["strict"]
    both = collections.Counter(
        f"{loose[place]} -> {strict[place]}" for place in loose.keys() & strict.keys()
    )
    data["kernelbench_to_strict"] = dict(sorted(both.items()))
    show.write("import_gpu", data, "import")


def _agreement(differs: str) -> str:
    return {"": "agree", "not judged here": "not judged"}.get(differs, "disagree")
