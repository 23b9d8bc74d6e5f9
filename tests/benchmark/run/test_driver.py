"""The driver: nothing is had twice, each side goes at its own pace, failures are data."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.driver import EMPTY_AT_FIRST, EvalSummary
from kernelgym.benchmark.run.folder import RunFolder, RunJournal
from kernelgym.benchmark.run.generations import AnswerKey, AnswerRequest, Generation
from kernelgym.benchmark.run.policies import RunStopped
from kernelgym.errors import PolicyFailure, UsageError
from kernelgym.records.trajectories import read_records
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Verdict
from support.evals import CountedPolicy, by_digest, lines_of

TASK: dict[str, Any] = {"suite": "Synthetic", "level": 1, "limit": 3}


def run(folder: Path, policy: Any, script: Any = by_digest, **options: Any) -> EvalSummary:
    judge = options.pop("evaluator", None)
    if judge is None and options.get("part") != "generate":
        judge = ScriptedEvaluator(script)
    task = {} if options.get("part") == "judge" else TASK
    return evaluate(policy, out=folder, evaluator=judge, **(task | options))


def files(folder: Path) -> dict[str, bytes]:
    return {"trajectories": (folder / "trajectories.jsonl").read_bytes()}


def test_every_answer_and_verdict_has_a_line(tmp_path: Path) -> None:
    policy = CountedPolicy()
    done = run(tmp_path, policy, samples=2, turns=3)
    assert done.episodes == done.ended == 6 and policy.closed
    answers = {AnswerKey.of(row) for row in lines_of(tmp_path, "generations")}
    assert answers == set(policy.asked) == {AnswerKey.of(r) for r in lines_of(tmp_path, "verdicts")}
    assert len(answers) == len(policy.asked) == done.answers > 6
    records = list(read_records(tmp_path / "trajectories.jsonl"))
    assert [record.key for record in records] == [
        f"Synthetic/L1/{number}#{sample}" for number in (1, 2, 3) for sample in (0, 1)
    ]
    assert sum(len(record.trajectory.turns) for record in records) == len(answers)
    assert done.usd == pytest.approx(0.25 * len(answers))


def test_same_call_again_asks_for_nothing(tmp_path: Path) -> None:
    run(tmp_path, CountedPolicy(), samples=2, turns=3)
    before = files(tmp_path)
    policy, judge = CountedPolicy(), ScriptedEvaluator(by_digest)
    done = run(tmp_path, policy, samples=2, turns=3, evaluator=judge)
    assert policy.asked == judge.judged == [] and done.ended == 6 and files(tmp_path) == before


def test_more_samples_add_to_a_run(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    run(whole, CountedPolicy(), samples=4, turns=2)
    part = tmp_path / "part"
    run(part, CountedPolicy(), samples=1, turns=2)
    policy = CountedPolicy()
    run(part, policy, samples=4, turns=2)
    assert all(key.sample > 0 for key in policy.asked) and files(part) == files(whole)


@pytest.mark.parametrize("stop_at", [1, 4, 9])
def test_broken_run_goes_on_to_the_same_end(stop_at: int, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    run(whole, CountedPolicy(), samples=2, turns=3)

    def breaks(asked: AnswerRequest) -> None:
        if len(first.asked) > stop_at:
            raise RuntimeError("the process dies")

    first = CountedPolicy(breaks)
    with pytest.raises(RuntimeError, match="the process dies"):
        run(part, first, samples=2, turns=3, concurrency=2)
    kept = {AnswerKey.of(row) for row in lines_of(part, "generations")}
    second = CountedPolicy()
    run(part, second, samples=2, turns=3)
    assert not kept & set(second.asked) and len(kept) >= stop_at - 1
    assert files(part) == files(whole)


def test_unavailable_verdict_is_judged_anew(tmp_path: Path) -> None:
    def sometimes(problem: Problem, kernel: Kernel) -> Verdict:
        if not problem.id.endswith("/2"):
            raise RuntimeError("the judge breaks")
        return by_digest(problem, kernel)

    whole, part = tmp_path / "whole", tmp_path / "part"
    run(whole, CountedPolicy(), turns=2)
    done = run(part, CountedPolicy(), sometimes, turns=2)
    assert done.cut == 2 and done.statuses["unavailable"] == 2
    assert {row["ended"] for row in lines_of(part, "trajectories")} >= {"cut"}
    policy = CountedPolicy()
    done = run(part, policy, turns=2)
    assert done.cut == 0 and all(key.turn > 0 for key in policy.asked)
    assert done.judged >= 2
    assert files(part) == files(whole)
    counted = Counter(row["verdict"]["status"] for row in lines_of(whole, "verdicts"))
    assert done.statuses == counted, "earlier commands' verdicts are counted, too"


def test_failed_answer_is_missing_and_asked_again(tmp_path: Path) -> None:
    def fails(asked: AnswerRequest) -> None:
        if asked.problem.id.endswith("/2"):
            raise PolicyFailure("503 from the server")

    done = run(tmp_path, CountedPolicy(fails))
    assert done.cut == 1 and done.ended == 2 and done.failures == {"provider": 1}
    (failure,) = lines_of(tmp_path, "failures")
    assert failure == {
        **{"problem": "Synthetic/L1/2", "sample": 0, "turn": 0, "kind": "provider"},
        **{"message": "503 from the server", "tries": 1},
    }
    policy = CountedPolicy()
    assert run(tmp_path, policy).ended == 3
    assert policy.asked == [("Synthetic/L1/2", 0, 0)]


def test_empty_answers_are_no_kernel_and_apart(tmp_path: Path) -> None:
    def empty(asked: AnswerRequest) -> Generation | None:
        number = asked.problem.id[-1]
        reason = {"1": "stop", "2": "content_filter"}.get(number)
        return Generation("", "thought", reason) if reason else None

    done = run(tmp_path, CountedPolicy(empty))
    assert done.statuses["no_kernel"] == 2 and done.failures == {"empty": 1, "content_filter": 1}
    assert done.ended == 3 and not done.stopped


def test_model_that_answers_nothing_stops_the_run(tmp_path: Path) -> None:
    policy = CountedPolicy(lambda asked: Generation(" "))
    done = run(tmp_path / "a", policy)
    assert "answered nothing to all 3 requests" in done.stopped
    policy = CountedPolicy(lambda asked: Generation(""))
    done = run(tmp_path / "b", policy, samples=20, concurrency=4)
    assert EMPTY_AT_FIRST <= len(policy.asked) < EMPTY_AT_FIRST + 4
    assert f"all {EMPTY_AT_FIRST} requests" in done.stopped and done.waiting


def test_stopped_run_keeps_what_is_paid_for(tmp_path: Path) -> None:
    def stops(asked: AnswerRequest) -> None:
        if len(policy.asked) >= 4:
            refused.append(asked.key)
            raise RunStopped("--max-usd is reached")

    policy, refused = CountedPolicy(stops), list[AnswerKey]()
    done = run(tmp_path, policy, samples=4, concurrency=2)
    assert done.stopped == "--max-usd is reached" and done.waiting
    assert len(lines_of(tmp_path, "generations")) == len(policy.asked) - len(refused)
    assert run(tmp_path, CountedPolicy(), samples=4).ended == 12


def test_cut_off_answer_has_its_defect(tmp_path: Path) -> None:
    run(tmp_path, CountedPolicy(lambda asked: Generation("<KERNEL>", "so", "length")))
    (turn,) = next(read_records(tmp_path / "trajectories.jsonl")).trajectory.turns
    assert "cut_off" in turn.reply.defects and turn.reply.thought == "so"


def test_generating_and_judging_apart_gives_the_same(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    run(whole, CountedPolicy(), turns=3)
    for _ in range(3):
        done = run(part, CountedPolicy(), part="generate", turns=3)
        assert done.judged == 0
        run(part, None, part="judge")
        assert json.loads((part / "machine.json").read_text())["judges"], "that machine is kept"
    assert done.answers == 0 or files(part) == files(whole)
    assert files(part) == files(whole)


class SlowJudge(ScriptedEvaluator):
    """Judges one kernel after the other, in 20 ms each."""

    lock = threading.Lock()

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        with self.lock:
            time.sleep(0.02)
        return super().evaluate(problem, kernel, seed=seed)


def test_answers_come_while_kernels_are_judged(tmp_path: Path) -> None:
    """With one side waiting for the other, fewer answers would be asked for at a time."""
    policy = CountedPolicy(takes_s=0.01)
    judge = SlowJudge(lambda problem, kernel: verdict("correct"))
    run(tmp_path, policy, samples=8, concurrency=4, evaluator=judge)
    assert policy.most_at_once == 4
    assert len(policy.asked) == 24


def test_one_process_writes_a_run(tmp_path: Path) -> None:
    held = RunFolder(tmp_path)
    with pytest.raises(
        UsageError, match=rf"another process \(process {os.getpid()} on .* is writing"
    ):
        run(tmp_path, CountedPolicy())
    asyncio.run(held.close())
    assert run(tmp_path, CountedPolicy()).ended == 3


def test_journal_writes_groups_and_reports_failures(tmp_path: Path) -> None:
    async def write() -> None:
        journal = RunJournal(tmp_path / "lines.jsonl")
        await asyncio.gather(*(journal.append({"n": n}) for n in range(50)))
        with pytest.raises(ValueError, match="Out of range"):
            await journal.append({"n": float("nan")})
        await journal.append({"n": 50})
        await journal.close()

    asyncio.run(write())
    assert [row["n"] for row in lines_of(tmp_path, "lines")] == list(range(51))


def test_damaged_line_is_refused_by_number(tmp_path: Path) -> None:
    run(tmp_path, CountedPolicy())
    path = tmp_path / "generations.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"sample": 0', b'"sample": "x"', 1))
    with pytest.raises(UsageError, match=r"generations\.jsonl, line 1: not a line of its kind"):
        run(tmp_path, CountedPolicy())
    path.write_bytes(whole[:-20])  # a killed writer's
    policy = CountedPolicy()
    (tmp_path / "trajectories.jsonl").unlink()
    assert run(tmp_path, policy).ended == 3 and len(policy.asked) == 1


def test_judge_of_other_rules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the evaluator judges by 'kernelbench@"):
        run(tmp_path, CountedPolicy(), evaluator=ScriptedEvaluator(ruleset="kernelbench"))
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"part": "both"}, "unknown part of a run"),
        ({"concurrency": 0}, "must be at least 1"),
        ({"levels": 1}, "unknown option 'levels'"),
    ],
)
def test_bad_argument_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        run(tmp_path, CountedPolicy(), **options)
