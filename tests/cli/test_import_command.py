"""``kernelgym import`` and ``kernelgym export --format kernelbench``, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym.cli import judging, main
from kernelgym.rulesets import ruleset
from kernelgym.testing import ScriptedEvaluator
from support.benchmark_runs import WRONG, eval_run, made, problem, record
from support.html_pages import parsed

KERNEL = "import torch\n# verdict: {}\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.fixture
def theirs(tmp_path: Path, kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of KernelBench's, its problems, and a judge that does as kernels say."""
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    monkeypatch.setattr(
        judging,
        "make_evaluator",
        lambda device, rules, *_: ScriptedEvaluator(ruleset=ruleset(rules), device=device),
    )
    folder = tmp_path / "theirs"
    folder.mkdir()
    for number, said in ((1, "correct 2.0"), (2, "wrong")):
        name = f"level_1_problem_{number}_sample_0_kernel.py"
        (folder / name).write_text(KERNEL.format(said))
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 1.0}
    (folder / "eval_results.json").write_text(json.dumps({"2": [entry]}))
    return folder


def test_import_judge_report_and_export(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, page, back = tmp_path / "ours", tmp_path / "page.html", tmp_path / "back"
    command = ["import", str(theirs), "--level", "1", "--ruleset", "kernelbench"]
    assert main([*command, "--out", str(ours), "--judge"]) == 0
    assert "2 kernels judged" in capsys.readouterr().out
    capsys.readouterr()
    assert main(["report", str(ours), "--html", str(page)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 1 claims differ" in said and "claimed correct, wrong here" in said
    assert "claimed correct, wrong here" in parsed(page.read_text()).text
    export = ["export", str(ours), "--format", "kernelbench", "--out", str(back)]
    assert main(export) == 0, "the run has one level, so it need not be named"
    results = json.loads((back / "eval_results.json").read_text())
    assert {n: each[0]["correctness"] for n, each in results.items()} == {"1": True, "2": False}
    name = "level_1_problem_1_sample_0_kernel.py"
    assert (back / name).read_text() == (theirs / name).read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["import", "{theirs}/nowhere", "--level", "1"], "cannot read folder"),
        (["import", "{theirs}", "--level", "2"], "kernels of level 1"),
        (["import", "{theirs}", "--level", "1", "--out", "{theirs}"], "name another one"),
        (["export", "{mixed}", "--format", "kernelbench", "--out", "{mixed}/x"], "run: 1, 2"),
        (
            ["export", "{run}", "--format", "kernelbench", "--out", "{run}/x"],
            "holds results on KernelBench only, and run has Test/L1/A",
        ),
    ],
)
def test_bad_input_is_one_line(
    theirs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    run = eval_run(tmp_path / "run", {"A": "r"})
    levels = [record(made([WRONG], problem("A", level=level)), 0) for level in (1, 2)]
    mixed = eval_run(tmp_path / "mixed", {}, episodes=levels)
    assert main([each.format(theirs=theirs, run=run, mixed=mixed) for each in arguments]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) == 1
