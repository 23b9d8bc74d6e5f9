from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.retrieval import copy_agent
from benchmarks.retrieval.adapting import joined, numbers
from kernelgym.indexing.judging import BuildVerdicts
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import solve
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Job, Kernel, Problem, Verdict

REFERENCE = """import torch
rows = 5
cols = 157
class Model:
    def __init__(self, k):
        self.linear = nn.Linear(k, 7)
    def forward(self, x, gain):
        out = self.linear(x) + 1e-5
        return torch.clamp(out + -1.52, 0.0, 6.5)
"""
ASKED = (REFERENCE.replace("-1.52", "2.25").replace("157", "33").replace("6.5", "4.0")).replace(
    "self.linear", "self.fc"
)
KERNEL = """import torch
SOURCE = '''#include <x>
v = v + -1.52f; if (c < 157 && d-157 > x157 * 1.57) w = std::min(v, 6.5f);'''
def launch(x, weight):
    return x + -1.52, weight[157], 157.0, 1e-5
class ModelNew(nn.Module):
    def __init__(self, k):
        self.linear = nn.Linear(k, 7)
    def forward(self, x, gain):
        return launch(x, self.linear.weight)
"""


def unasked(problem: Problem, kernel: Kernel) -> Verdict:
    raise AssertionError(f"a verdict of {problem.id} was asked for")


def test_numbers_follow_names_and_operators() -> None:
    assert numbers(REFERENCE, ASKED) == {157: 33, -1.52: 2.25, 6.5: 4.0}
    assert numbers(REFERENCE, REFERENCE) == {}


def test_adapted_kernel_has_asked_names_and_numbers() -> None:
    text = joined([(REFERENCE, KERNEL)], ASKED)
    assert "(x + 2.25, weight[33], 33.0, 1e-05)" in text
    assert "v + 2.25f; if (c < 33 && d-33 > x157 * 1.57) w = std::min(v, 4.0f)" in text
    assert "self.fc.weight" in text and "linear.weight" not in text
    assert joined([(REFERENCE, "x = 1")], ASKED) == joined([(REFERENCE, KERNEL)], "x = 1") == ""


def test_chain_needs_parameters_and_arguments_for_both() -> None:
    pair = [(REFERENCE, KERNEL)] * 2
    assert joined(pair, ASKED) == ""
    second = "self.fc = nn.Linear(k, 7)\n        self.other = nn.Linear(k, 7)"
    wide = ASKED.replace("self.fc = nn.Linear(k, 7)", second).replace("x, gain", "x, gain, more")
    text = joined(pair, wide)
    assert "self.part_1(self.part_0(x, gain), more)" in text
    assert "launch_0(x, self.fc.weight)" in text and "launch_1(x, self.other.weight)" in text


@pytest.mark.slow
def test_chained_kernels_are_accepted_by_the_judge() -> None:
    from kernelgym.judge import LocalEvaluator

    shown = [get_problem(f"Synthetic/L1/{number}") for number in (31, 14)]
    assert [problem.name for problem in shown] == ["31_scale", "14_hardswish"]
    scale, hardswish = ((problem.source, solve(problem).source) for problem in shown)
    step = next(line for line in scale[0].splitlines() if line.startswith("        out = "))
    asked = hardswish[0].replace("        out = x *", f"{step}\n        out = out *", 1)
    asked = asked.replace("relu6(x", "relu6(out")
    problem = replace(shown[1], id="Chained/1", suite="Chained", source=asked)
    right, wrong = (Kernel(joined(pair, asked), "triton") for pair in ([scale, hardswish], [scale]))
    judge = LocalEvaluator("cpu", timing=False)
    try:
        found = judge.evaluate_many([Job(problem, right), Job(problem, wrong)])
    finally:
        judge.close()
    assert [each.status.value for each in found] == ["correct", "wrong"]


def test_copies_are_counted_by_exclusions() -> None:
    asked = copy_agent.asked_problems(3)
    assert [problem.level for problem in asked] == [1, 2, 3]
    index = copy_agent.archive("triton", asked, {1: 30, 2: 30, 3: 30})
    own = {entry.kernel for entry in index.entries if entry.problem_id in {p.id for p in asked}}
    judge = ScriptedEvaluator(
        lambda problem, kernel: verdict("correct" if kernel.source in own else "wrong")
    )
    judged = BuildVerdicts(judge)
    rows, tested = copy_agent.measured("triton", asked, index, judged)
    assert tested == {"left": 0, "untested": 0, "n": 3}
    found = {(row["exclusions"], row["level"]): row for row in rows}
    for level in (1, 2, 3):
        for exclusions in copy_agent.EXCLUSIONS:
            assert found[exclusions, level]["n"] == found[exclusions, level]["three"] == 1
        assert found["none", level]["accepted"] == 1
        assert found["1-3", level]["accepted"] == found["all", level]["any"] == 0


def test_entry_that_solves_leaves_by_the_copy_test() -> None:
    asked = copy_agent.asked_problems(2)
    index = copy_agent.archive("triton", asked, {1: 30, 2: 30, 3: 30})
    (leak,) = copy_agent.shown(index.without_answers(asked)[0], asked[0], "1-3")[:1]
    judge = ScriptedEvaluator(
        lambda problem, kernel: verdict("correct" if kernel.source == leak.kernel else "wrong")
    )
    rows, tested = copy_agent.measured("triton", asked, index, BuildVerdicts(judge))
    assert tested["left"] == 1
    found = {(row["exclusions"], row["level"]): row["accepted"] for row in rows}
    assert found["1-3", 1] == 1 and found["all", 1] == 0


def test_unjudged_problems_are_not_counted() -> None:
    asked = copy_agent.asked_problems(3)
    index = copy_agent.archive("triton", asked, {1: 30, 2: 30, 3: 30})
    judged = BuildVerdicts(ScriptedEvaluator(unasked), minutes=0.0)
    rows, tested = copy_agent.measured("triton", asked, index, judged)
    assert rows == [] and tested["untested"] == 3


def test_rows_of_other_languages_are_kept(tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "copies.json"
    out.write_text(json.dumps({"copy_agent": [{"language": "cpp"}, {"language": "triton"}]}))
    monkeypatch.setattr(copy_agent, "LocalEvaluator", lambda *given: ScriptedEvaluator(unasked))
    monkeypatch.setattr(copy_agent, "_PER_LEVEL", {1: 10})
    given = ["--verdicts", str(tmp_path / "verdicts"), "--minutes", "0", "--limit", "1"]
    monkeypatch.setattr("sys.argv", ["copy_agent", *given, "--out", str(out)])
    copy_agent.main()
    written = json.loads(out.read_text())
    assert written["copy_agent"] == [{"language": "cpp"}]
    assert written["copy_test"]["triton"]["n"] == 1 and "machine" in written
