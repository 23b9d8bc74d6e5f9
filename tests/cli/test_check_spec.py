"""`kernelgym check` on a kernel spec: a verdict a shape, exit codes, usage errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym.rulesets import RULESETS, recorded_ruleset, with_tolerances
from support.specs import CPP, SPEC, TRITON_SPEC, changed, written

TUNED = {"contract__tolerances": {"atol": 1e-3, "rtol": 1e-2}}


def test_every_shape_gets_a_verdict(run, judges, tmp_path: Path) -> None:
    path = written(tmp_path, changed(SPEC, **TUNED))
    code, out, err = run("check", path, "--device", "cpu", "--json")
    assert (code, err) == (0, "")
    verdicts = json.loads(out)
    assert list(verdicts) == ["scaled/rows=4", "scaled/rows=31", "scaled/rows=1237"]
    labels = {verdict["ruleset"] for verdict in verdicts.values()}
    assert len(labels) == 1 and labels.pop().startswith("strict+tolerances(atol=0.001,rtol=0.01)@")
    assert all(judge.closed for judge in judges)


def test_another_kernel_is_judged_by_the_spec(run, judges, folder: Path) -> None:
    path = written(folder, SPEC)
    assert run("check", "right.py", "--problem", path)[0] == 0
    code, out, _ = run("check", "wrong.py", "--problem", path)
    assert code == 1 and out.count("wrong") >= 3
    assert run("check", "right.py", "--problem", f"{path}#rows=4")[0] == 0


LABEL = with_tolerances("strict", 1e-3, 1e-2).label


def test_own_tolerances_hold_at_one_shape(run, judges, folder: Path) -> None:
    path = written(folder, changed(SPEC, **TUNED))
    code, out, _ = run("check", "right.py", "--problem", f"{path}#rows=4", "--json")
    assert (
        code == 0 and json.loads(out)["ruleset"] == LABEL == judges[-1].capabilities.ruleset.label
    )
    assert recorded_ruleset(LABEL) == judges[-1].capabilities.ruleset
    (folder / "reply.md").write_text("no kernel here")
    at_one = ("--problem", f"{path}#rows=4", "--json", "--reply")
    assert json.loads(run("check", "reply.md", *at_one)[1])["ruleset"] == LABEL


def test_own_tolerances_hold_in_a_batch(run, judges, folder: Path, monkeypatch) -> None:
    written(folder, changed(SPEC, **TUNED), "tuned.json")
    names = ("tuned.json#rows=4", "Synthetic/L1/2", "tuned.json#rows=31")
    rows = [{"id": n, "problem": name, "kernel": "right.py"} for n, name in enumerate(names)]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")  # paths are relative to the jobs file
    code, _, err = run("check", "--batch", "../jobs.jsonl", "--out", "out.jsonl")
    assert code == 0, err
    said = [json.loads(line)["ruleset"] for line in Path("out.jsonl").read_text().splitlines()]
    assert said == [LABEL, RULESETS["strict"].label, LABEL]


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        ({"contract__tensors__0__shape": ["depth"]}, (), "'depth', which is not defined"),
        ({"source": CPP.replace("torch::Tensor scaled", "void scaled")}, (), "nothing writes"),
        ({"reference": None}, (), '"reference" is missing'),
        ({"contract__shapes__0__axes": {"rows": 10**13}}, (), "memory budget"),
        ({}, ("--memory", "1MB"), "memory budget"),
        ({}, ("--replay", "ab"), "--replay"),
    ],
)
def test_bad_specs_end_before_anything_runs(
    run, judges, tmp_path: Path, change, options, why: str
) -> None:
    path = written(tmp_path, changed(SPEC, **change))
    code, out, err = run("check", path, "--device", "cpu", *options)
    assert (code, out) == (2, "") and why in err and err.count("\n") == 1
    assert not judges


WRITES = CPP.replace(
    "torch::Tensor scaled(torch::Tensor x_in, double factor)",
    "void scaled(torch::Tensor x_in, torch::Tensor out, double factor)",
)
WRITES = WRITES.replace("auto out = torch::empty_like(x_c);", "").replace("return out;", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        TRITON_SPEC,
        changed(
            SPEC,
            source=WRITES,
            returns="arguments",
            contract__tensors__0__layout="transposed",
            contract__tensors__0__init="uniform",
        ),
    ],
    ids=["cpp", "triton", "arguments"],
)
def test_the_judge_finds_specs_correct(run, spec, tmp_path: Path) -> None:
    code, out, err = run("check", written(tmp_path, spec), "--device", "cpu", "--no-timing")
    assert code == 0, out + err


@pytest.mark.slow
def test_the_judge_finds_a_wrong_kernel_wrong(run, tmp_path: Path) -> None:
    path = written(tmp_path, changed(SPEC, source=CPP.replace("x[i] *", "x[i] +")))
    code, out, _ = run("check", path, "--device", "cpu", "--no-timing")
    assert code == 1 and "wrong" in out
