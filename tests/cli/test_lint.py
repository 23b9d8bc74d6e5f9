"""`kernelgym lint`, and what `ls` says of its results."""

from __future__ import annotations

import json

import pytest

from kernelgym.cli.lint import chosen_problems
from kernelgym.hygiene import Hygiene, read_kept, write_kept
from kernelgym.rulesets import RULESETS
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_PROBLEM


@pytest.fixture
def mine(folder, monkeypatch):
    monkeypatch.setenv("KERNELGYM_CACHE", str(folder / "cache"))
    (folder / "mine").mkdir()
    (folder / "mine" / "good.py").write_text(SAMPLE_PROBLEM.source)
    source = SAMPLE_PROBLEM.source + (
        "\nclass Model(nn.Module):\n    def forward(self, *given):\n        return given[0] * 1\n"
    )
    (folder / "mine" / "bad.py").write_text(source)
    return folder / "mine"


@pytest.mark.slow
def test_lint_of_a_folder(run, mine, folder):
    code, out, err = run("lint", "mine", "--json", "out.json")
    assert (code, err) == (1, "")
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert ["mine/bad", "identity", "returning the input passes"] in lines
    assert ["mine/good", "passes"] in lines
    assert "1 of 2 pass, 1 degenerate" in out and RULESETS["strict"].label in out
    results = json.loads((folder / "out.json").read_text())["results"]
    assert [(r["problem_id"], r["reasons"], r["tested"]) for r in results] == [
        ("mine/bad", ["identity"], True),
        ("mine/good", [], True),
    ]
    # The environments and `ls` go by it from now on.
    code, out, _ = run("ls", "--suite", "mine")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()] == ["hygiene", "identity", "passes"]
    code, out, _ = run("ls", "--suite", "mine", "--exclude-degenerate")
    assert code == 0 and "mine/good" in out and "mine/bad" not in out
    code, out, _ = run("ls", "--suite", "mine", "--ruleset", "kernelbench")
    assert out.count("not tested") == 2


@pytest.mark.slow
def test_lint_of_a_sound_file_takes_what_was_kept(run, mine):
    assert run("lint", "mine/good.py")[0] == 0
    problem = get_problem("mine/good.py")
    strict = RULESETS["strict"]
    cache = mine.parent / "cache" / "hygiene"
    assert read_kept(cache, problem, strict, "cpu") is not None
    told = Hygiene(problem.id, strict.label, "fp32", "cpu", ("zeros",), "as told", tested=True)
    write_kept(cache, problem, strict, "cpu", told)
    code, out, _ = run("lint", "mine/good.py")
    assert code == 1 and "as told" in out


def test_what_was_not_tested_fails(run, mine):
    (mine / "slow.py").write_text(
        SAMPLE_PROBLEM.source + "\nimport time\ndef get_inputs():\n    time.sleep(600)\n"
    )
    code, out, _ = run("lint", "mine/slow.py", "--timeout", "1.5", "--ruleset", "kernelbench")
    assert code == 1 and "not done after 1.5 s" in out and "1 not tested" in out


def test_targets_may_be_problems_levels_choices_and_folders(mine):
    ids = lambda *targets: [p.id for p in chosen_problems(targets)]  # noqa: E731
    assert ids("Synthetic/L1/3") == ["Synthetic/L1/3"]
    assert ids("Synthetic/L1/2-3,7") == [f"Synthetic/L1/{n}" for n in (2, 3, 7)]
    level = ids("Synthetic/L2")
    assert len(level) == 100 and all(i.startswith("Synthetic/L2/") for i in level)
    assert len(ids("Synthetic")) == 300
    assert ids("mine", "mine", "Synthetic/L1/3@seed2-gpu") == [
        "mine/bad", "mine/good", "Synthetic/L1/3@seed2-gpu",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "name a problem"),
        (("Nope/L1/1",), "unknown problem"),
        (("Synthetic/L9",), "unknown level"),
        (("Synthetic/L1/x",), "unknown problem"),
        (("mine/good.py", "--ruleset", "lax"), "unknown ruleset"),
        (("mine/good.py", "--precision", "fp8"), "fp32, fp16, bf16"),
        (("mine/good.py", "--device", "tpu"), "tpu"),
        (("mine/good.py", "--workers", "0"), "at least 1"),
        (("mine/good.py", "--timeout", "0"), "above 0"),
        (("mine/good.py", "--json", "no/where.json"), "does not exist"),
    ],
)
def test_usage_errors(run, mine, argv, said):
    code, out, err = run("lint", *argv)
    assert (code, out) == (2, "") and said in err
    assert len(err.splitlines()) == 1
