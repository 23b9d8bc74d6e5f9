"""The benchmark of retrieval's effect: its rates and gains, and all stages in miniature."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.retrieval import effect
from benchmarks.retrieval import effect_corpus as corpus
from benchmarks.retrieval import effect_rows as rows


def episode(problem: str, first: bool, second: bool | None = None, **said: Any) -> dict[str, Any]:
    about = {
        "problem": problem,
        "first": first,
        "solved": first or bool(second),
        "reward": float(first),
        "tokens1": 100,
        "tokens2": None if second is None else 300,
        "shown1": 0,
        "shown2": None if second is None else 2,
        "verbatim": False,
    }
    return {**about, **said}


def arms(**by_arm: list[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    return {arm: {"shapes": episodes} for arm, episodes in by_arm.items()}


def test_rates_count_episodes_and_second_answers() -> None:
    played = [episode("a", True), episode("a", False, True), episode("b", False, False)]
    (one, together) = rows.effect_rows({0: arms(none=played)})
    assert (one["seed"], together["seed"]) == (0, rows.ALL)
    assert (one["n"], one["problems"], one["retried"]) == (3, 2, 2)
    assert one["solve_rate"] == pytest.approx(2 / 3) and one["low"] < 2 / 3 < one["high"]
    assert one["first"]["value"] == pytest.approx(1 / 3) and one["retry"]["value"] == 0.5
    assert (one["prompt_tokens"], one["prompt_tokens_2"]) == (100, 300)


def test_problems_of_other_seeds_are_others() -> None:
    played = arms(none=[episode("a", True), episode("b", False, False)])
    *_, together = rows.effect_rows({0: played, 1: played, 2: played})
    assert (together["n"], together["problems"]) == (6, 6)


def test_gains_are_paired_and_show_losses() -> None:
    none = [episode("a", True), episode("b", True), episode("c", False, False)]
    first = [episode("c", False, True), episode("b", False, False), episode("a", True)]
    found = rows.gain_rows({0: arms(none=none, first=first)})
    by = {(row["measure"], row["seed"]): row for row in found}
    assert {(row["arm"], row["against"]) for row in found} == {("first", "none")}
    assert by["first", 0]["gain"] == pytest.approx(-1 / 3)
    assert by["solved", rows.ALL]["gain"] == pytest.approx(0.0)
    assert by["solved", 0]["low"] < 0.0 < by["solved", 0]["high"]


@pytest.mark.parametrize("plan", [corpus.FULL, corpus.TINY], ids=["full", "tiny"])
def test_plans_leave_room_for_a_page_and_an_attempt(plan: corpus.Plan) -> None:
    question, feedback = 160, 60
    read = question + plan.page_tokens + plan.answer_tokens + feedback
    assert read + max(plan.new_tokens, plan.answer_tokens) <= plan.model.context
    assert plan is corpus.TINY or plan.new_tokens > plan.answer_tokens


def test_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    class Given:
        work, model, judge = tmp_path, "", "cpu"

    effect._check_work(Given, corpus.TINY)  # type: ignore[arg-type]
    effect._check_work(Given, corpus.TINY)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="another plan"):
        effect._check_work(Given, corpus.FULL)  # type: ignore[arg-type]


def run(work: Path, *more: str) -> int:
    command = [sys.executable, "-m", "benchmarks.retrieval.effect", "--tiny", "--device", "cpu"]
    command += ["--workers", "1", "--seeds", "0", "--work", str(work), *more]
    return subprocess.run(command, check=False, timeout=600).returncode


@pytest.mark.slow
def test_all_stages_in_miniature(tmp_path: Path) -> None:
    """In calls that end early, as on a machine that is lent for minutes."""
    work = tmp_path / "work"
    ended, kept = [], dict[Path, str]()
    for _ in range(12):
        ended.append(run(work, "--seconds", "1"))
        paths = (work / "seed_0" / f"{stage}.json" for stage in effect.STAGES)
        done = {path: path.read_text() for path in paths if path.exists()}
        assert kept.items() <= done.items(), "what was done is not done again"
        kept = done
        if ended[-1] != 3:
            break
    assert ended == [3] * (len(effect.STAGES) - 1) + [0]
    assert {path.stem for path in kept} == set(effect.STAGES)
    assert not [*work.glob("seed_0/model_*")]
    found = json.loads((work / "retrieval_effect.json").read_text())
    cells = {(row["arm"], row["seed"], row["table"]): row for row in found["effect"]}
    seeds = (0, rows.ALL)
    assert set(cells) == {(a, s, t) for a in effect.ARMS for s in seeds for t in corpus.TABLES}
    assert all(row["n"] == corpus.TINY.samples for row in cells.values() if row["seed"] == 0)
    assert all(
        (row["shown"] > 0) == (row["arm"] in ("first", "adaptive")) for row in cells.values()
    )
    fits = [found["seeds"]["0"][stage] for stage in ("fit_without", "fit_with")]
    assert fits[0]["tokens"] == fits[1]["tokens"]
    check_an_adaptive_episode(work / "seed_0")
    assert "| `adaptive` |" in rows.effect(found)


def check_an_adaptive_episode(folder: Path) -> None:
    """A wrong answer is followed by repairs; a kernel that stands on the page is a copy."""
    from kernelgym.retrieval.part import load_index
    from kernelgym.testing import ScriptedEvaluator, verdict
    from kernelgym_train.config.sections import ModelConfig
    from kernelgym_train.demo.learning import RULES
    from kernelgym_train.models import load_tokenizer
    from kernelgym_train.rollout.play import EpisodeRules, play, tasks_of
    from kernelgym_train.types import Completion

    tokenizer = load_tokenizer(ModelConfig(id=str(folder / "tokenizer")))
    plan, splits = corpus.TINY, corpus.splits_of(corpus.TINY, 0)
    observer = corpus.observer_of(folder, plan, "cpu", tokenizer, "adaptive")
    problem = corpus.held_out(plan, splits, tokenizer)["compositions"][0]
    ids, _ = observer.retrieved(problem)
    index = load_index(observer.parts[0], "triton", "cpu")  # type: ignore[arg-type]
    (kernel,) = (entry.kernel for entry in index.entries if entry.id == ids[0])
    assert problem.id not in {entry.problem_id for entry in index.entries}

    class Copies:
        def generate(self, requests: Any) -> list[Completion]:
            (asked,) = requests
            changed = "# again\n" * len(asked.messages[1:])  # the same kernel is judged once
            text = f"<KERNEL>\n{changed}{kernel}\n\n</KERNEL>"
            read = tuple(range(len(str(asked.messages))))
            return [Completion(text, read, (1,), None, "stop", 0)]

    judge = ScriptedEvaluator([verdict("wrong"), verdict("correct")], RULES)
    rules = EpisodeRules("sparse", "correct", "minimal")
    (rollout,) = asyncio.run(play(tasks_of(0, [problem], 1), Copies(), judge, observer, rules))
    one = effect.episode(rollout, observer)
    assert (one["first"], one["solved"], one["verbatim"]) == (False, True, True)
    assert one["shown1"] == len(ids) > 0 and one["tokens2"] > one["tokens1"]
    later, _ = observer.retrieved(problem, rollout.trajectory.turns[:1])
    assert one["shown2"] == len(later)
    kinds = {entry.id: entry.kind for entry in index.entries}
    assert {kinds[each] for each in ids} == {"solution"}
    assert "repair" in {kinds[each] for each in later}


@pytest.mark.slow
def test_model_that_is_there_is_asked_as_it_is(tmp_path: Path) -> None:
    from dataclasses import replace

    from kernelgym_train.demo.corpus import right_answers
    from kernelgym_train.demo.model import build_model
    from kernelgym_train.demo.tokenizer import train_tokenizer

    warm = corpus.splits_of(corpus.TINY, 0).warmstart
    tokenizer = train_tokenizer(right_answers(warm[:20], 0, 1), 600, words=True)
    model = build_model(tokenizer, replace(corpus.TINY.model, context=16_384))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    assert run(tmp_path / "work", "--model", str(tmp_path / "model"), "--samples", "1") == 0
    found = json.loads((tmp_path / "work" / "retrieval_effect.json").read_text())
    by = {(row["arm"], row["table"]): row for row in found["effect"] if row["seed"] == 0}
    assert {arm for arm, _ in by} == set(effect.OF_A_MODEL)
    for table in corpus.TABLES:
        assert by["none", table]["shown"] == 0 < by["first", table]["shown"]
        assert by["first", table]["prompt_tokens"] > by["none", table]["prompt_tokens"] + 200
    assert (tmp_path / "model").is_dir(), "what was given stays"
