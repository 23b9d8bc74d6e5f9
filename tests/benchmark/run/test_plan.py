"""Plans: they come back from their file, and a run goes on with its own only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.run.options import EvalTask
from kernelgym.benchmark.run.plan import (
    EvalPlan,
    check_continues,
    episode_key,
    read_plan,
    sample_of,
    write_plan,
)
from kernelgym.benchmark.run.plan_from_options import problems_of, resolve
from kernelgym.errors import UsageError
from kernelgym.prompts.context import Context
from kernelgym.prompts.hardware import Hardware
from kernelgym.rewards import REWARDS
from kernelgym.rulesets import recorded_ruleset
from support.specs import SPEC, changed, written

SPEED = next(name for name, preset in REWARDS.items() if preset.speed == "required")
POLICY = {"kind": "openai", "model": "m", "temperature": 0.7}


def plan(**options: Any) -> EvalPlan:
    task = EvalTask(**({"suite": "Synthetic", "level": 1, "limit": 2} | options))
    return resolve(task, POLICY)[0]


def test_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    there = plan(
        hardware=Hardware("H200", units=132),
        context=Context(last=3, best=True),
        turns=3,
        examples=0,
    )
    write_plan(tmp_path, there)
    back = read_plan(tmp_path)
    check_continues(back, there, tmp_path)
    problem = problems_of(back)[0]
    assert back.observer().observe(problem) == there.observer().observe(problem)
    assert "132" in str(back.observer().observe(problem))
    assert json.loads((tmp_path / "plan.json").read_text())["kind"] == "eval"


def test_plan_follows_a_specs_tolerances(tmp_path: Path) -> None:
    spec = changed(SPEC, contract__tolerances={"atol": 1e-3, "rtol": 1e-2})
    given = {"suite": written(tmp_path, spec), "level": None, "language": "cpp"}
    there = plan(**given, timing_baseline="compile")
    assert there.ruleset.startswith("strict+tolerances(atol=0.001,rtol=0.01)@")
    write_plan(tmp_path, there)
    rules = read_plan(tmp_path).rules
    assert rules == there.rules == recorded_ruleset(there.ruleset)
    assert (rules.atol, rules.rtol, rules.timing.baseline) == (1e-3, 1e-2, "compile")


@pytest.mark.slow
def test_plan_keeps_the_digest_of_its_index(tmp_path: Path) -> None:
    there = plan(retrieval="synthetic")
    write_plan(tmp_path, there)
    back = read_plan(tmp_path)
    check_continues(back, there, tmp_path)
    problem = problems_of(back)[0]
    assert back.observer().retrieved(problem) == there.observer().retrieved(problem) != ((), 0)
    assert back.retrieval["digest"]
    with pytest.raises(UsageError, match="retrieval was"):
        check_continues(back, plan(), tmp_path)


CHANGES = {
    "turns": ({"turns": 2}, "turns was 1, and 2"),
    "ruleset": ({"ruleset": "kernelbench"}, "ruleset was"),
    "prompt": ({"examples": 0}, "examples was"),
    "kind": ({"prompt": "short"}, "prompt was"),
    "context": ({"context_tokens": 9}, "context_tokens was 6000, and 9"),
    "reward": ({"stop_when": "never"}, "stop_when was"),
    "problems": ({"limit": 3}, "problems was 2 with other ids or sources, and 3 others"),
    "seed": ({"seed": 1}, "seed was 0, and 1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_plan_is_refused_by_its_field(change: str, tmp_path: Path) -> None:
    options, said = CHANGES[change]
    with pytest.raises(UsageError, match=f"another plan: {said}"):
        check_continues(plan(), plan(**options), tmp_path)


def test_other_sampling_is_refused_by_its_field(tmp_path: Path) -> None:
    there = plan()
    now = dataclasses.replace(there, policy=POLICY | {"temperature": 1.0})
    with pytest.raises(UsageError, match=r"policy\.temperature was 0\.7, and 1\.0"):
        check_continues(there, now, tmp_path)


def test_only_more_samples_go_on(tmp_path: Path) -> None:
    check_continues(plan(samples=4), plan(samples=8), tmp_path)
    with pytest.raises(UsageError, match="has samples=4 already, and samples=2"):
        check_continues(plan(samples=4), plan(samples=2), tmp_path)


def test_changed_source_of_a_problem_is_refused() -> None:
    there = plan()
    changed = ((there.problems[0][0], "0" * 16), there.problems[1])
    with pytest.raises(UsageError, match="the run was planned with 0000"):
        problems_of(dataclasses.replace(there, problems=changed))


def test_rules_of_another_version_are_refused() -> None:
    with pytest.raises(UsageError, match="judged under 'strict@00000000'"):
        _ = dataclasses.replace(plan(), ruleset="strict@00000000").rules


@given(st.text(max_size=20).filter(lambda text: text != ""), st.integers(0, 10**6))
def test_key_of_an_episode_comes_back(problem: str, sample: int) -> None:
    assert sample_of(episode_key(problem, sample)) == (problem, sample)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot read .* another folder with --out"),
        ("[]", "holds no plan; restore"),
        ("{}", "a plan of version None and kind None"),
        ('{"version": 1, "kind": "eval"}', "plan.json holds no valid plan: 'problems'"),
        ('{"version": 2, "kind": "eval"}', "a plan of version 2"),
    ],
)
def test_damaged_plan_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no plan\.json"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"turns": True}, "turns is a whole number"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"prompt": "long"}, "unknown prompt 'long'"),
        ({"context": "all"}, "unknown context 'all'"),
        ({"stop_when": "speedup:2"}, "needs measured speed"),
        ({"level": 9}, "unknown level"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"language": "cuda"}, "cuda"),
        ({"reward": "gold"}, "unknown reward preset"),
        ({"reward": SPEED}, "needs measured speed|is not timed on device"),
    ],
)
def test_bad_option_of_a_task_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(**options)
