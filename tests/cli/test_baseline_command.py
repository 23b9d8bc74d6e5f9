"""`kernelgym baseline`, with a judge that compiles nothing."""

import json

import pytest

import kernelgym.judge
from kernelgym.baseline import Baseline
from kernelgym.errors import UsageError
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM


@pytest.fixture
def judge(monkeypatch, folder):
    """Put a stand-in in the judge's place; returns what it was asked."""
    asked = []

    class Evaluator:
        def __init__(self, device, ruleset, *, memory_bytes):
            self.device, self.ruleset = device, ruleset

        def prepare_baseline(self, problem, *, refresh=False):
            asked.append((problem.id, self.device, self.ruleset, refresh))
            if "# huge" in problem.source:
                raise UsageError("too large for the device")
            if "# odd" in problem.source:
                return Baseline(problem.id, self.device, message="it computes something else")
            return Baseline(problem.id, self.device, 2.5, 1.25, True, "10 bytes kept")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(kernelgym.judge, "LocalEvaluator", Evaluator)
    (folder / "mine").mkdir()
    for name in ("good", "odd", "huge"):
        (folder / "mine" / f"{name}.py").write_text(f"# {name}\n{SAMPLE_PROBLEM.source}")
    return asked


def test_a_prepared_baseline(run, judge):
    code, out, err = run("baseline", "mine/good.py")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert [*judge[0][0].split(), "2.5", "1.25", "prepared", "10", "bytes", "kept"] in rows
    assert "1 of 1 prepared, 1 faster compiled" in out
    assert judge == [(judge[0][0], "cpu", RULESETS["strict"], False)]


def test_a_folder_is_prepared_as_far_as_it_can_be(run, judge, folder):
    code, out, _ = run(
        "baseline", "mine", "--device", "cuda:1", "--ruleset", "kernelbench", "--precision", "fp16",
        "--refresh", "--json", "out.json",
    )  # fmt: skip
    assert code == 1 and "1 of 3 prepared" in out
    assert "it computes something else" in out and "too large for the device" in out
    assert {(device, refresh) for _, device, _, refresh in judge} == {("cuda:1", True)}
    assert {(r.name, r.precision, r.tf32) for _, _, r, _ in judge} == {
        ("kernelbench", "fp16", "torch")
    }
    results = json.loads((folder / "out.json").read_text())["results"]
    assert sorted((r["problem_id"], r["prepared"], r["compile_ms"]) for r in results) == [
        ("mine/good", True, 1.25), ("mine/huge", False, 0.0), ("mine/odd", False, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine/huge.py"], "too large for the device"),
        (["nothing/there"], "nothing/there"),
        (["mine/good.py", "--precision", "fp8"], "fp8"),
        (["mine/good.py", "--json", "no/such/folder.json"], "its folder does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused(run, judge, arguments, said):
    code, out, err = run("baseline", *arguments)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
