"""Which problems environments list, draw and refuse: the gate as a player meets it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.errors import DegenerateProblem, ProblemError, UsageError
from kernelgym.hygiene import Hygiene, write_kept
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.suites import known_hygiene as gate
from kernelgym.suites import suite
from kernelgym.suites.directory import DirectorySuite
from kernelgym.suites.known_hygiene import known_hygiene, passing
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Problem

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]
SOFTMAX = Problem("KernelBench/L1/23", "KernelBench", 1, "23_Softmax", SAMPLE_PROBLEM.source)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hygiene"


@pytest.fixture
def mine(tmp_path: Path) -> DirectorySuite:
    """Five problems of our own in a folder."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}_scale.py").write_text(f"{SAMPLE_PROBLEM.source}\n# {number}\n")
    return DirectorySuite(folder)


def keep(
    folder: Path, problem: Problem, *reasons: str, rules: Ruleset = STRICT, device: str = "cpu"
) -> None:
    record = Hygiene(problem.id, rules.label, rules.precision, device, reasons, "", tested=True)
    write_kept(folder, problem, rules, device, record)


def make(found: Any, rules: Ruleset = STRICT, **options: Any) -> KernelEnv:
    return KernelEnv(found, evaluator=ScriptedEvaluator(ruleset=rules), **options)


def drawn(env: KernelEnv, count: int = 60, **options: Any) -> set[str]:
    chosen = options or None
    ids = {env.reset(seed=seed, options=chosen)[1]["problem_id"] for seed in range(count)}
    return {problem_id.rpartition("/")[2] for problem_id in ids}


def test_all_are_listed_and_only_the_sound_are_drawn(mine: DirectorySuite, cache: Path) -> None:
    keep(cache, mine.problems()[1], "zeros")
    keep(cache, mine.problems()[3], "identity", "constant")
    env = make(mine)
    assert len(env.problems) == 5
    assert drawn(env) == {"0_scale", "2_scale", "4_scale"}
    everything = {f"{n}_scale" for n in range(5)}
    assert drawn(env, allow_degenerate=True) == everything
    assert drawn(make(mine, allow_degenerate=True)) == everything
    twin = env.sibling()
    assert drawn(twin) == {"0_scale", "2_scale", "4_scale"}


def test_a_degenerate_problem_is_refused_by_id_unless_told(
    mine: DirectorySuite, cache: Path
) -> None:
    bad = mine.problems()[1]
    keep(cache, bad, "zeros")
    env = make(mine)
    with pytest.raises(DegenerateProblem, match="an output of zeros passes") as caught:
        env.reset(options={"problem_id": bad.id})
    assert "'allow_degenerate': True" in str(caught.value)
    options = {"problem_id": bad.id, "allow_degenerate": True}
    assert env.reset(options=options)[1]["problem_id"] == bad.id
    insisting = make(mine, allow_degenerate=True)
    assert insisting.reset(options={"problem_id": bad.id})[1]["problem_id"] == bad.id
    for odd in (1, "yes", None):
        with pytest.raises(UsageError, match="allow_degenerate"):
            env.reset(options={"allow_degenerate": odd})


def test_single_ids_name_a_problem_and_ranges_do_not(mine: DirectorySuite, cache: Path) -> None:
    keep(cache, mine.problems()[1], "zeros")
    for named in ("1_scale", ["0_scale", "1_scale"], "0_scale,1_scale"):
        with pytest.raises(DegenerateProblem, match="pass allow_degenerate=True"):
            make(mine, problems=named)
        assert "1_scale" in drawn(make(mine, problems=named, allow_degenerate=True))
    assert drawn(make(mine, problems=mine.problems()[:2])) == {"0_scale"}
    synthetic = suite("Synthetic")
    keep(cache, synthetic.get("Synthetic/L1/2"), "zeros")
    assert drawn(make(synthetic, level=1, problems="1-3")) == {"1", "3"}
    with pytest.raises(DegenerateProblem):
        make(synthetic, level=1, problems="1-3,2")
    with pytest.raises(DegenerateProblem):
        make(synthetic, level=1).reset(options={"problem_id": 2})


def test_nothing_left_to_draw_is_an_error(mine: DirectorySuite, cache: Path) -> None:
    for problem in mine.problems():
        keep(cache, problem, "identity")
    with pytest.raises(DegenerateProblem, match=r"all 5 problems .* identity"):
        make(mine)
    with pytest.raises(ProblemError, match="exclude_degenerate"):
        make(mine, exclude_degenerate=True)
    assert len(drawn(make(mine, allow_degenerate=True))) == 5


def test_exclude_degenerate_does_not_list_them(mine: DirectorySuite, cache: Path) -> None:
    for rules in (STRICT, KERNELBENCH):
        keep(cache, mine.problems()[1], "zeros", rules=rules)
        env = make(mine, rules, exclude_degenerate=True)
        assert len(env.problems) == 4 and "1_scale" not in drawn(env)
    with pytest.raises(UsageError, match="contradict"):
        make(mine, exclude_degenerate=True, allow_degenerate=True)


def test_a_ruleset_that_checks_no_problems_plays_them_all(
    mine: DirectorySuite, cache: Path
) -> None:
    bad = mine.problems()[1]
    keep(cache, bad, "zeros", rules=KERNELBENCH)
    env = make(mine, KERNELBENCH)
    assert len(drawn(env)) == 5
    assert env.reset(options={"problem_id": bad.id})[1]["problem_id"] == bad.id


def test_results_count_for_their_ruleset_precision_and_device_only(
    mine: DirectorySuite, cache: Path
) -> None:
    bad = mine.problems()[1]
    half = dataclasses.replace(STRICT, precision="fp16")
    keep(cache, bad, "zeros", rules=half)
    keep(cache, mine.problems()[2], "zeros", device="cuda")
    assert len(drawn(make(mine))) == 5
    assert "1_scale" not in drawn(make(mine, half))


def test_what_was_linted_while_an_environment_runs_counts_when_asked_for(
    mine: DirectorySuite, cache: Path
) -> None:
    env = make(mine)
    keep(cache, mine.problems()[1], "zeros")
    with pytest.raises(DegenerateProblem):
        env.reset(options={"problem_id": "1_scale"})


def test_vector_environments_go_by_the_same_rules(mine: DirectorySuite, cache: Path) -> None:
    keep(cache, mine.problems()[1], "zeros")
    envs = KernelVectorEnv(4, suite=mine, evaluator=ScriptedEvaluator())
    seen = {str(i) for s in range(20) for i in envs.reset(seed=4 * s)[1]["problem_id"]}
    assert len(seen) == 4 and mine.problems()[1].id not in seen
    with pytest.raises(DegenerateProblem):
        envs.reset(options={"problem_id": "1_scale"})
    options = {"problem_id": "1_scale", "allow_degenerate": True}
    assert set(envs.reset(options=options)[1]["problem_id"]) == {mine.problems()[1].id}


def test_the_table_answers_for_kernelbench_until_a_lint_does(cache: Path) -> None:
    known = known_hygiene(SOFTMAX, STRICT)
    assert known.reasons == ("zeros", "constant", "input_independent") and known.tested
    assert "table" in known.detail
    assert passing([SOFTMAX, SAMPLE_PROBLEM], STRICT) == (SAMPLE_PROBLEM,)
    keep(cache, SOFTMAX)
    assert known_hygiene(SOFTMAX, STRICT).passes
    # Elsewhere the table still holds.
    assert not known_hygiene(SOFTMAX, STRICT, "cuda:0").passes
    assert not known_hygiene(SOFTMAX, KERNELBENCH).passes
    # Another problem of that number is not the table's.
    assert known_hygiene(dataclasses.replace(SOFTMAX, name="23_Own"), KERNELBENCH).passes


@pytest.mark.parametrize("number, name", [(19, "19_ReLU"), (20, "20_LeakyReLU")])
def test_relu_is_degenerate_on_own_inputs_only(number: int, name: str) -> None:
    # `test_rulesets_differ` in tests/judge/lint shows by running it that this is so.
    relu = Problem(f"KernelBench/L1/{number}", "KernelBench", 1, name, "")
    assert known_hygiene(relu, KERNELBENCH).reasons == ("identity",)
    assert known_hygiene(relu, STRICT).passes
    given = dataclasses.replace(STRICT, distributions=())
    assert known_hygiene(relu, given).reasons == ("identity",)


def test_the_table_depends_on_precision() -> None:
    matmul = dataclasses.replace(
        SOFTMAX, id="KernelBench/L1/6", name="6_Matmul_with_large_K_dimension_"
    )
    half = dataclasses.replace(STRICT, precision="bf16")
    assert known_hygiene(matmul, STRICT).summary == "passes"
    assert known_hygiene(matmul, half).reasons == ("constant", "input_independent")


def test_what_only_breaks_kernelbenchs_harness_is_played() -> None:
    from kernelgym.suites.kernelbench_facts import degenerate, facts

    entry = next(entry for entry in facts().values() if entry.level == 4)
    problem = Problem(entry.problem_id, "KernelBench", 4, entry.name, "")
    assert degenerate(problem.id) == ("broken_reference",)
    for rules in (STRICT, KERNELBENCH):
        assert known_hygiene(problem, rules).summary == "not tested"


def test_no_lint_clears_what_no_test_finds_under_fixed_tolerances(cache: Path) -> None:
    mse = dataclasses.replace(SOFTMAX, id="KernelBench/L1/94", name="94_MSELoss")
    for rules in (STRICT, KERNELBENCH):
        assert known_hygiene(mse, rules).reasons == ("analytic",)
        keep(cache, mse, rules=rules)
    assert known_hygiene(mse, STRICT).passes
    assert known_hygiene(mse, KERNELBENCH).reasons == ("analytic",)


def test_nothing_is_run_to_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert gate.known_hygiene(SAMPLE_PROBLEM, STRICT).summary == "not tested"
    assert drawn(KernelEnv("Synthetic", 1, evaluator=ScriptedEvaluator()), 5)
