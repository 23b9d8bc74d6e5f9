"""Answers from files: another run of ours, or a folder as KernelBench writes it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.answers.parsing import parse
from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.driver import EvalSummary
from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.policies import AnswerMissing, PolicyOptions, make_policy
from kernelgym.benchmark.run.replay_policies import answer_of
from kernelgym.errors import UsageError
from kernelgym.records.trajectories import read_records
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator
from support.evals import CountedPolicy, by_digest, lines_of

TASK: dict[str, Any] = {"suite": "Synthetic", "level": 1, "limit": 2, "samples": 2, "turns": 3}
SOURCE = SAMPLE_KERNELS["triton"].source


def run(folder: Path, policy: Any, **options: Any) -> EvalSummary:
    judge = ScriptedEvaluator(by_digest, ruleset=options.get("ruleset", "strict"))
    return evaluate(policy, out=folder, evaluator=judge, **(TASK | options))


def test_replay_gives_the_same_episodes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(first, CountedPolicy())
    done = run(second, f"replay:{first}")
    assert done.answers == len(lines_of(first, "generations")) and done.usd == 0.0
    name = "trajectories.jsonl"
    assert (second / name).read_bytes() == (first / name).read_bytes()
    plan = json.loads((second / "plan.json").read_text())
    assert plan["policy"]["policy"] == {"kind": "counted", "model": "counted"}


def test_replay_under_other_rules_lacks_later_answers(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(first, CountedPolicy(), turns=1)
    done = run(second, f"folder:{first}", ruleset="kernelbench", stop_when="never", turns=2)
    assert done.cut == 4 and done.failures == {"missing": 4}
    assert {row["kind"] for row in lines_of(second, "failures")} == {"missing"}
    assert len(lines_of(second, "verdicts")) == 4


def write(folder: Path, *names: str, source: str = SOURCE) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"level_{name}_kernel.py").write_text(f"{source}# {name}\n")
    return folder


def test_folder_of_kernelbench_is_judged(tmp_path: Path) -> None:
    names = ("1_problem_1_sample_0", "1_problem_1_sample_1", "1_problem_2_sample_0")
    folder = write(tmp_path / "theirs", *names, "2_problem_1_sample_0")
    (folder / "level_1_problem_1_sample_0_prompt.txt").write_text("read")
    (folder / "eval_results.json").write_text("{}")
    done = run(tmp_path / "ours", f"folder:{folder}", turns=1)
    assert done.ended == 3 and done.failures == {"missing": 1}
    records = list(read_records(tmp_path / "ours" / "trajectories.jsonl"))
    found = [record.trajectory.turns[0].reply for record in records]
    assert [reply.kernel and reply.kernel.source.splitlines()[-1] for reply in found] == [
        f"# {name}" for name in names
    ]
    assert not any(reply.defects for reply in found)
    # Another kernel is another policy: the run is not gone on with.
    write(folder, "1_problem_2_sample_1")
    with pytest.raises(UsageError, match=r"policy\.digest was"):
        run(tmp_path / "ours", f"folder:{folder}", turns=1)


def test_small_forms_have_their_problems_number(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", "1_problem_19_sample_0")
    problem = type(SAMPLE_PROBLEM)(
        "KernelBench/L1/19@small", "KernelBench", 1, "19_ReLU", SAMPLE_PROBLEM.source
    )
    policy = make_policy(f"folder:{folder}")
    found = asyncio.run(policy.answer(AnswerRequest(problem, 0, 0, (), 0)))
    assert isinstance(found, Generation) and "ModelNew" in found.text
    with pytest.raises(AnswerMissing, match="sample 0, turn 1"):
        asyncio.run(policy.answer(AnswerRequest(problem, 0, 1, (), 0)))


@given(st.text(alphabet="ab`~\n<>/KERNEL \t", max_size=60))
def test_source_is_read_back_from_its_answer(text: str) -> None:
    source = f'import torch\nX = """{text}"""\nclass ModelNew: ...\n'
    kernel = parse(answer_of(source), "triton").kernel
    if kernel is not None and "KERNEL>" not in text:
        assert kernel.source.strip() == source.strip()
    assert kernel is not None


BAD = {
    "nothing": ("replay:", "needs the folder of a run"),
    "no folder": ("folder:", "needs a folder of kernels"),
    "no run": ("replay:none", "is not a run"),
    "missing": ("folder:none", "cannot read folder 'none'"),
    "empty": ("folder:empty", "is neither a run of ours"),
    "latin": ("folder:latin", r"sample_0_kernel\.py' is not UTF-8 text \(byte 3\)"),
    "twice": ("folder:twice", "holds sample 0 of problem 1 twice"),
    "no answers": ("replay:bare", "holds no answers to replay"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_folder_is_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("latin").mkdir()
    Path("latin/level_1_problem_1_sample_0_kernel.py").write_bytes(b"caf\xe9")
    write(Path("twice"), "1_problem_1_sample_0", "01_problem_1_sample_0")
    run(Path("bare"), CountedPolicy())
    Path("bare/generations.jsonl").unlink()
    named, said = BAD[case]
    with pytest.raises(UsageError, match=said):
        make_policy(named)


def test_options_have_no_use_with_files(tmp_path: Path) -> None:
    write(tmp_path / "theirs", "1_problem_1_sample_0")
    with pytest.raises(UsageError, match=r"--temperature 0\.5 has no use with policy 'folder'"):
        make_policy(f"folder:{tmp_path / 'theirs'}", PolicyOptions(temperature=0.5))


def test_damaged_answer_of_a_replayed_run_is_refused(tmp_path: Path) -> None:
    first = tmp_path / "first"
    run(first, CountedPolicy())
    path = first / "generations.jsonl"
    path.write_text(path.read_text().replace('"text": "', '"text": 3, "other": "'))
    with pytest.raises(UsageError, match="text and reasoning of an answer must be texts"):
        run(tmp_path / "second", f"replay:{first}")
    shutil.rmtree(tmp_path / "second")
