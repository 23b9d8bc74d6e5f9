"""`kernelgym baseline`, with a judge that compiles nothing."""

import json

import pytest

import kernelgym.judge
from kernelgym.baseline import Baseline
from kernelgym.errors import UsageError
from kernelgym.reference_time import ReferenceTime
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


@pytest.fixture
def measured(monkeypatch, folder):
    """Put a stand-in in the place of measuring; returns what it was asked."""
    asked = []

    def measure(problem, setting, device, *, trials, timeout_s, memory_bytes, threads):
        asked.append((problem.name, setting.mode, trials))
        times = {"mean": 2.0, "std": 0.1, "min": 1.9, "max": 2.5, "median": 2.0, "trials": trials}
        given = {"message": "it fails"} if "# odd" in problem.source else times
        return ReferenceTime(problem.id, problem.digest, setting, device, **given)

    monkeypatch.setattr("kernelgym.judge.measuring.process.measure_reference", measure)
    (folder / "mine").mkdir()
    for name in ("good", "odd"):
        (folder / "mine" / f"{name}.py").write_text(f"# {name}\n{SAMPLE_PROBLEM.source}")
    return asked


def test_modes_are_timed_once_and_kept(run, measured):
    given = ("baseline", "mine", "--modes", "eager,default", "--trials", "7")
    code, out, _ = run(*given)
    assert code == 1 and "2 of 4 timed" in out and "it fails" in out
    assert len(measured) == 4 and {trials for *_, trials in measured} == {7}
    assert run(*given)[0] == 1 and len(measured) == 4
    assert run(*given, "--refresh")[0] == 1 and len(measured) == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--modes", "quick"), "mode 'quick' is none of eager"),
        (("--modes", "eager", "--trials", "2"), "--trials is at least 3"),
        (("--modes", "eager", "--timeout-s", "0"), "--timeout-s is above 0"),
        (("--modes", "cudagraphs"), "needs a GPU"),
        (("--modes", "eager", "--workers", "0"), "--workers is at least 1"),
        (("--modes", "eager", "--workers", "2"), "--workers needs a GPU"),
        (("--workers", "2"), "--workers needs --modes"),
        (("--out", "x.jsonl"), "--out needs --modes"),
        (("--modes", "eager", "--kernelbench", "kb"), "KernelBench's layout holds its own"),
    ],
)
def test_modes_that_cannot_be_are_refused(run, measured, folder, options, said):
    code, _, err = run("baseline", "mine", *options)
    assert code == 2 and said in err and measured == []
    assert not (folder / "kb").exists() and not (folder / "baselines.jsonl").exists()
