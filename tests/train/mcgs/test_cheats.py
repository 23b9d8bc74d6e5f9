"""A proposer that cheats: exploits of the red team's corpus, offered to a search."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from benchmarks.search.texts import TextProposer
from kernelgym import Kernel, LocalEvaluator, UsageError
from kernelgym.cli.redteam import load_corpus
from kernelgym.redteam.corpus import CorpusEntry
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Finding, Problem, Severity, Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.variant import read_variant
from support.searches import searched

ENTRIES, PROBLEMS = load_corpus(Path(__file__).parents[2] / "adversarial")


def readable(entry: CorpusEntry) -> bool:
    try:
        read_variant(entry.kernel)
    except UsageError:
        return False  # refused before it is judged
    return True


CPP = [e for e in ENTRIES if e.language == "cpp" and e.runs_on("cpu") and readable(e)]
STARTS = {e.problem: e for e in reversed(CPP) if e.kind == "honest"}
EXPLOITS: dict[str, list[CorpusEntry]] = collections.defaultdict(list)
for each in CPP:
    if each.kind == "exploit" and not each.open and each.problem in STARTS:
        EXPLOITS[each.problem].append(each)
MOST_CHEATED = sorted(EXPLOITS, key=lambda name: (-len(EXPLOITS[name]), name))


def cheated(name: str, evaluator: ScriptedEvaluator | LocalEvaluator, outdir: Path) -> None:
    """Offer all exploits of a problem, and check that none is the best."""
    start = STARTS[name].kernel
    offered = {entry.name: entry.kernel for entry in EXPLOITS[name]}
    result = searched(
        task_of(PROBLEMS[name], start, name),
        evaluator,
        outdir,
        budget=Budget(len(offered)),
        approximate=True,
        proposer=TextProposer(start, offered),
    )
    assert result["evaluations"] >= min(3, len(offered))
    cheats = {kernel.digest for kernel in offered.values()}
    assert result["best"]["digest"] not in cheats
    best = (outdir / result["best"]["path"]).read_bytes().decode()
    assert Kernel(best, "cpp").digest == result["best"]["digest"] == start.digest


def test_exploits_are_there_to_be_offered() -> None:
    assert sum(map(len, EXPLOITS.values())) > 20 and len(EXPLOITS) >= 3


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge as a gate: the start is correct, and cheats fail in all ways that there are."""
    if kernel.digest == STARTS[MOST_CHEATED[0]].kernel.digest:
        return verdict("correct", speedup=0.5)
    hard = Finding("torch_compute_call", "it computes with torch", Severity.HARD)
    kinds = [
        verdict("rejected", findings=(hard,)),
        verdict("wrong", message="a fast wrong kernel"),
        verdict("runtime_error"),
        verdict("timeout"),
        verdict("correct"),  # untimed: its speed was withheld
    ]
    return kinds[int(kernel.digest, 16) % len(kinds)]


def test_cheats_that_the_judge_refuses_are_no_states(tmp_path: Path) -> None:
    cheated(MOST_CHEATED[0], ScriptedEvaluator(judged), tmp_path)


def test_cheat_that_passes_once_is_not_promoted(tmp_path: Path) -> None:
    """It is caught when it is judged again, with inputs of another seed."""
    seen: set[str] = set()

    def lucky(problem: Problem, kernel: Kernel) -> Verdict:
        if kernel.digest == STARTS[MOST_CHEATED[0]].kernel.digest:
            return verdict("correct", speedup=0.5)
        if kernel.digest in seen:
            return verdict("wrong", message="it had learnt the first inputs")
        seen.add(kernel.digest)
        return verdict("correct", speedup=40.0)

    cheated(MOST_CHEATED[0], ScriptedEvaluator(lucky), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST_CHEATED[:4])
def test_cheats_are_not_promoted_by_the_judge(name: str, tmp_path: Path) -> None:
    with LocalEvaluator(workers=2) as evaluator:
        cheated(name, evaluator, tmp_path)
