from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym.errors import UsageError
from kernelgym.indexing import build as build_module
from kernelgym.indexing.build import IndexPlan, build_index
from kernelgym.indexing.corpora import corpus_of
from kernelgym.judge import LocalEvaluator
from kernelgym.retrieval import synthetic
from kernelgym.retrieval.embedding import OperatorEmbedder
from kernelgym.retrieval.exclusion import keys_of, keys_of_entry
from kernelgym.retrieval.folder import check_index, read_index, read_manifest
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Evaluator, Kernel, Problem, Verdict
from support.archive_rows import kernelbook_row, sakana_row

PROBLEMS = SyntheticSuite().problems(2, ids="1-14")
HELD_OUT = SyntheticSuite(per_level=40).problems(2, split="heldout")[:4]


def rows_file(path: Path, problems: Sequence[Problem] = PROBLEMS) -> Path:
    rows = [
        {
            "reference": problem.source,
            "kernel": solve(problem, "triton").source,
            "language": "triton",
            "problem_id": problem.id,
            "licence": "BSD",
        }
        for problem in problems
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


Says = Callable[[Problem, Kernel], Verdict]


def right(problem: Problem, kernel: Kernel) -> Verdict:
    return verdict("correct", speedup=1.5)


class Judges:
    """Opens scripted judges and counts what they judge."""

    def __init__(self, says: Says = right) -> None:
        self.says, self.seen, self.timing = says, [], []

    @contextlib.contextmanager
    def __call__(self, timing: bool) -> Iterator[Evaluator]:
        def said(problem: Problem, kernel: Kernel) -> Verdict:
            self.seen.append((problem, kernel))
            return self.says(problem, kernel)

        self.timing.append(timing)
        yield ScriptedEvaluator(said)


def plan(*corpora: object, **more: Any) -> IndexPlan:
    given = {"languages": ("triton",)} | more
    return IndexPlan(tuple(corpus_of(str(each)) for each in corpora), OperatorEmbedder(), **given)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the embedded corpus be small."""
    monkeypatch.setattr(synthetic, "_PER_LEVEL", {1: 30, 2: 50})


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return rows_file(tmp_path / "mine.jsonl")


def test_only_correct_kernels_are_kept(mine, tmp_path) -> None:
    bad = {PROBLEMS[0].source: "wrong", PROBLEMS[1].source: "unavailable"}
    judges = Judges(lambda problem, _: verdict(bad.get(problem.source, "correct")))
    built = build_index(plan(mine), tmp_path / "out", judges)
    assert built.entries == {"triton": len(PROBLEMS) - 2}
    assert built.left_out == {"judged_wrong": 1, "not_verified": 1}
    index = read_index(tmp_path / "out", "triton")
    assert {entry.verdict for entry in index.entries} == {"correct"}
    assert not {entry.reference for entry in index.entries} & set(bad)
    assert len(list(check_index(tmp_path / "out"))) == 1
    assert judges.timing == [True]
    assert sorted(os.listdir(tmp_path)) == ["mine.jsonl", "out"]


def test_unverified_ones_need_to_be_asked_for(mine, tmp_path) -> None:
    given = plan(mine, verify=False)
    with pytest.raises(UsageError, match="no entry to write"):
        build_index(given, tmp_path / "out", Judges())
    judges = Judges()
    given = dataclasses.replace(given, include_unverified=True)
    build_index(given, tmp_path / "out", judges)
    index = read_index(tmp_path / "out", "triton")
    assert {entry.verdict for entry in index.entries} == {"not judged"} and not judges.seen


def test_judge_s_findings_are_kept(mine, tmp_path) -> None:
    def says(problem: Problem, kernel: Kernel) -> Verdict:
        timed = verdict("correct", speedup=2.0)
        assert timed.timing is not None
        return dataclasses.replace(
            timed, timing=dataclasses.replace(timed.timing, speedup_high=2.5)
        )

    build_index(plan(mine), tmp_path / "out", Judges(says))
    entry = read_index(tmp_path / "out", "triton").entries[0]
    assert entry.speed == (2.0, 1.9, 2.5) and entry.device == "cpu"
    assert entry.ruleset.startswith("strict@")


def test_only_what_a_run_can_reach_is_judged(mine, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(build_module, "REACH", 3)
    asked = SyntheticSuite(per_level=60).problems(2, ids="40-41")
    judges = Judges()
    built = build_index(plan(mine, reach_of=asked), tmp_path / "out", judges)
    assert 3 <= len(judges.seen) <= 6 and built.entries["triton"] == len(judges.seen)
    index = read_index(tmp_path / "out", "triton")
    for problem in asked:
        assert len(index.search(problem, 3).neighbours) == 3


def test_time_that_is_over_leaves_the_rest_out(mine, tmp_path) -> None:
    built = build_index(plan("synthetic", mine, minutes=1e-9), tmp_path / "out", Judges())
    assert built.left_out["not_verified"] == len(PROBLEMS)
    index = read_index(tmp_path / "out", "triton")
    assert {entry.origin for entry in index.entries} == {"Synthetic"}


def test_duplicates_are_kept_once(mine, tmp_path) -> None:
    again = tmp_path / "again.jsonl"
    text = mine.read_text().replace("import torch\\n", "import torch  \\n\\n")
    again.write_text(text)
    built = build_index(plan(mine, again), tmp_path / "out", Judges())
    assert built.left_out == {"duplicate": len(PROBLEMS)}


def test_manifest_says_what_is_in_it(mine, tmp_path) -> None:
    build_index(plan("synthetic", mine), tmp_path / "out", Judges())
    manifest = read_manifest(tmp_path / "out")
    synthetic, own = manifest["corpora"]
    assert synthetic["licences"].keys() == {"MIT"} and own["licences"] == {"BSD": len(PROBLEMS)}
    assert own["corpus"] == str(mine) and own["rows"] == len(PROBLEMS)
    assert manifest["embedder"] == {
        "name": "operators",
        "dimension": 512,
        "model": "operators",
    }
    assert manifest["verdicts"] == {"correct": manifest["languages"]["triton"]["entries"]}


def test_archives_build_an_index_of_each_language(tmp_path) -> None:
    book, archive = tmp_path / "book.jsonl", tmp_path / "sakana.jsonl"
    inductor = kernelbook_row("Other", triton_code="import torch._inductor\nclass OtherNew: ...")
    book.write_text("".join(json.dumps(r) + "\n" for r in (kernelbook_row(), inductor)))
    archive.write_text(json.dumps(sakana_row()) + "\n")
    given = plan(f"kernelbook:{book}", f"sakana:{archive}", languages=())
    built = build_index(given, tmp_path / "out", Judges())
    assert built.entries == {"cuda": 1, "triton": 1} and built.left_out == {"inductor": 1}
    assert len(list(check_index(tmp_path / "out"))) == 2
    for language in ("cuda", "triton"):
        assert all(
            "Speedup" not in e.kernel for e in read_index(tmp_path / "out", language).entries
        )


def solves_two(problem: Problem, kernel: Kernel) -> Verdict:
    """Accept the nearest entries' kernels on the first held-out problem."""
    accepted = problem.digest == HELD_OUT[0].digest and int(kernel.digest, 16) % 3 == 0
    return verdict("correct" if accepted else "wrong")


def test_copies_leave_the_index_for_good(tmp_path) -> None:
    judges = Judges(solves_two)
    held_out = {"Synthetic:heldout": HELD_OUT}
    built = build_index(plan("synthetic", held_out=held_out), tmp_path / "out", judges)
    assert judges.timing == [False] and built.left_out["held_out_copy"] >= 1
    index = read_index(tmp_path / "out", "triton")
    judged = {(p.digest, k.source) for p, k in judges.seen}
    solving = {k.source for p, k in judges.seen if solves_two(p, k).correct}
    assert solving and not solving & {entry.kernel for entry in index.entries}
    for problem in HELD_OUT:
        shown = index.search(problem, 50).neighbours
        assert len(shown) == 8  # k + 5
        for neighbour in shown:
            assert (problem.digest, neighbour.entry.kernel) in judged
    assert built.untested == {}


def test_held_out_problems_exclude_their_twins(tmp_path) -> None:
    path = rows_file(tmp_path / "mine.jsonl", [*PROBLEMS, *HELD_OUT])
    held_out = {"Synthetic:heldout": HELD_OUT}
    judges = Judges(lambda p, k: verdict("wrong" if p in HELD_OUT else "correct"))
    built = build_index(plan(path, held_out=held_out), tmp_path / "out", judges)
    assert built.left_out["held_out_id"] == len(HELD_OUT)
    index = read_index(tmp_path / "out", "triton")
    for problem in HELD_OUT:
        own = keys_of(problem)
        for entry in index.entries:
            other = keys_of_entry(entry)
            assert not any(set(own[reason]) & set(other[reason]) for reason in own)


def test_untested_problems_are_named(mine, tmp_path) -> None:
    held_out = {"Synthetic:heldout": HELD_OUT}
    given = plan("synthetic", held_out=held_out, minutes=1e-9)
    built = build_index(given, tmp_path / "out", Judges())
    assert set(built.untested) == {problem.id for problem in HELD_OUT}
    assert read_manifest(tmp_path / "out")["untested"] == {"triton": dict(built.untested)}


def test_entry_on_which_the_judge_failed_is_not_shown(tmp_path) -> None:
    judges = Judges(lambda p, k: verdict("unavailable" if int(k.digest, 16) % 2 else "wrong"))
    held_out = {"Synthetic:heldout": HELD_OUT[:1]}
    build_index(plan("synthetic", held_out=held_out), tmp_path / "out", judges)
    index = read_index(tmp_path / "out", "triton")
    shown = index.search(HELD_OUT[0], 50).neighbours
    assert len(shown) == 8
    assert all(int(Kernel(n.entry.kernel, "triton").digest, 16) % 2 == 0 for n in shown)


def test_empty_corpora_and_other_folders_are_refused(tmp_path) -> None:
    (tmp_path / "empty.jsonl").write_text('{"reference": "", "kernel": "", "language": "cpp"}\n')
    with pytest.raises(UsageError, match=r"give no entry \(1 language\)"):
        build_index(plan(tmp_path / "empty.jsonl"), tmp_path / "out", Judges())
    with pytest.raises(UsageError, match="exists and is not an index"):
        build_index(plan("synthetic"), tmp_path, Judges())


@pytest.mark.slow
def test_killed_command_goes_on_with_a_real_judge(tmp_path) -> None:
    mine = rows_file(tmp_path / "mine.jsonl", PROBLEMS[:6])
    broken = json.loads(mine.read_text().splitlines()[0])
    broken["kernel"] = broken["kernel"].replace("tl.store(", "tl.store(1 + ")
    broken["problem_id"] = "mine/broken"
    broken["reference"] = PROBLEMS[7].source
    mine.write_text(mine.read_text() + json.dumps(broken) + "\n")
    command = [sys.executable, "-m", "kernelgym", "index", "build", "--corpus", str(mine)]
    command += ["--out", str(tmp_path / "out"), "--no-timing"]
    command += ["--verdict-cache", str(tmp_path / "cache")]
    running = subprocess.Popen(command, start_new_session=True)
    while running.poll() is None and not list((tmp_path / "cache").rglob("*")):
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "out").exists()
    subprocess.run(command, check=True)
    index = read_index(tmp_path / "out", "triton")
    assert len(index.entries) == 6
    assert {entry.verdict for entry in index.entries} == {"correct"}
    assert read_manifest(tmp_path / "out")["left_out"].keys() <= {
        "judged_wrong",
        "judged_runtime_error",
        "judged_compile_error",
    }


@pytest.mark.slow
def test_planted_answer_is_found_by_a_real_judge(tmp_path) -> None:
    """A solution of a held-out problem stands under another reference, where no text tells."""
    held_out = HELD_OUT[:1]
    rows = rows_file(tmp_path / "mine.jsonl", PROBLEMS[:4]).read_text().splitlines()
    planted = json.loads(rows[0]) | {
        "kernel": solve(held_out[0], "triton").source,
        "problem_id": "x/1",
    }
    (tmp_path / "mine.jsonl").write_text("\n".join([*rows[1:], json.dumps(planted)]) + "\n")

    @contextlib.contextmanager
    def judge(timing: bool) -> Iterator[Evaluator]:
        evaluator = LocalEvaluator("cpu", "strict", 1, timing)
        try:
            yield evaluator
        finally:
            evaluator.close()

    given = plan(
        tmp_path / "mine.jsonl",
        held_out={"Synthetic:heldout": held_out},
        verify=False,
        include_unverified=True,
    )
    built = build_index(given, tmp_path / "out", judge)
    assert built.left_out == {"held_out_copy": 1} and built.untested == {}
    index = read_index(tmp_path / "out", "triton")
    assert "x/1" not in {entry.problem_id for entry in index.entries}
    assert len(index.search(held_out[0], 9).neighbours) == 3
