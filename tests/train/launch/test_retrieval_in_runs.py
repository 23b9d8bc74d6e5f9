"""Retrieval in training runs: what is shown, kept, refused and measured."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest

from kernelgym import Kernel, Problem, UsageError
from kernelgym.cli import main as command_line
from kernelgym.prompts.observer import render
from kernelgym.records.export import read_before
from kernelgym.records.observer_settings import recorded_observer
from kernelgym.records.trajectories import write_records
from kernelgym.retrieval.exclusion import keys_of, keys_of_entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.prompt_part import Retrieval, load_index, part_of_suite
from kernelgym.retrieval.synthetic import synthetic_entries, synthetic_index
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.testing import ScriptedEvaluator, reply, verdict
from kernelgym_train.config.config import Config, load_config
from kernelgym_train.launch.assembly import (
    TokenCounter,
    episode_rules,
    make_steps,
    training_observer,
    training_retrieval,
)
from kernelgym_train.launch.manifest import check_retrieval, manifest
from kernelgym_train.metrics.retrieval_metrics import copied_share, retrieval_metrics
from kernelgym_train.rollout.huggingface_policy import ChatText
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.rollout.records import rollout_record
from kernelgym_train.types import Completion, Rollout, SampleRequest
from support import tiny

ON = (
    *("env.suite=Synthetic", "env.levels=[2]", "env.split=rl", "evaluation.split=heldout"),
    *("retrieval.index=synthetic", "retrieval.tokens=3000", "sampling.max_prompt_tokens=8192"),
    "reward.preset=sparse",
)
PROBLEMS = SyntheticSuite().problems(2, split="rl")[:3]


class Copies:
    """Answers with the first kernel that its prompt shows; then with a solution."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return [
            Completion(self._answer(request), (1,), (2,), None, "stop", 0) for request in requests
        ]

    def _answer(self, request: SampleRequest) -> str:
        text = render(request.messages)
        self.read.append(text)
        if "# Solved problems" in text:
            page = text.partition("# Solved problems")[2]
            source = page.partition("Its replacement:")[2].split("```")[1].removeprefix("python\n")
            return reply(Kernel(source, "triton"))
        return reply(solve(PROBLEMS[request.key.problem]))


def config_of(*settings: str) -> Config:
    return tiny.config(*ON, *settings)


def played(config: Config, **observed: Any) -> tuple[list[Rollout], Any, Copies]:
    observer = training_observer(config, "cpu", **observed)
    policy = Copies()
    judge = ScriptedEvaluator(lambda problem, kernel: verdict("wrong"), ruleset=config.rules)
    rollouts = asyncio.run(
        play(tasks_of(0, PROBLEMS, 2), policy, judge, observer, episode_rules(config))
    )
    return rollouts, observer, policy


def test_all_of_a_group_read_the_same_first_prompt() -> None:
    config = config_of("env.max_turns=1")
    _, _, policy = played(config)
    assert len(policy.read) == 6 and len(set(policy.read)) == 3
    assert all("# Solved problems that resemble yours" in text for text in policy.read)


def test_metrics_tell_what_was_shown_and_copied() -> None:
    config = config_of("env.max_turns=2")
    rollouts, observer, _ = played(config)
    found = retrieval_metrics(rollouts, observer, episode_rules(config))
    shown = [observer.retrieved(problem) for problem in PROBLEMS]
    # Some before the first answer, none before the second.
    assert found["retrieval/examples"] == pytest.approx(sum(len(ids) for ids, _ in shown) / 6)
    assert found["retrieval/tokens"] == pytest.approx(sum(tokens for _, tokens in shown) / 6)
    assert found["retrieval/copied"] == found["retrieval/verbatim"] == 1.0
    assert found["retrieval/excluded_id"] >= 1.0
    plain_observer = dataclasses.replace(observer, parts=())
    assert retrieval_metrics(rollouts, plain_observer, episode_rules(config)) == {}


def test_copied_share_counts_runs_of_six_words() -> None:
    source = "a b c d e f g h"
    assert copied_share(source, ["x", source]) == 1.0
    assert copied_share(source, ["a b c d e f"]) == pytest.approx(1 / 3)
    assert copied_share("a b", [source]) == 0.0


def test_record_of_a_run_gives_its_prompts_back() -> None:
    config = config_of("env.max_turns=2", "sampling.max_prompt_tokens=6000")
    rollouts, observer, policy = played(config)
    record = rollout_record(rollouts[0], observer, episode_rules(config))
    assert len(record.retrieved[0]) == 3 and record.retrieved[1] == ()
    again = recorded_observer(record)
    assert again == dataclasses.replace(observer, ruleset=again.ruleset)
    assert render(read_before(record, 0)) in policy.read
    assert render(read_before(record, 1)) in policy.read


def test_export_counts_in_the_run_s_own_tokens(tmp_path, capsys) -> None:
    config = config_of("env.max_turns=2", "sampling.max_prompt_tokens=6000", "retrieval.tokens=600")
    tokenizer = tiny.tokenizer()
    tokenizer.save_pretrained(tmp_path / "words")
    observer = training_observer(config, "cpu", TokenCounter(tokenizer))
    judge = ScriptedEvaluator(lambda problem, kernel: verdict("wrong"), ruleset=config.rules)
    rules = episode_rules(config)
    rollouts = asyncio.run(play(tasks_of(0, PROBLEMS, 1), Copies(), judge, observer, rules))
    records = [rollout_record(rollout, observer, rules) for rollout in rollouts]
    write_records(tmp_path / "episodes.jsonl", records)
    command = ["export", str(tmp_path / "episodes.jsonl"), "--format", "sft", "--wrong"]
    command += ["--out", str(tmp_path / "rows.jsonl")]
    assert command_line(command) == 2  # by characters, other entries fit
    assert "is not what its observer shows now" in capsys.readouterr().err
    assert command_line([*command, "--tokenizer", str(tmp_path / "words")]) == 0
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 6
    assert command_line([*command, "--tokenizer", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("room", [1500, 2500, 4000])
def test_prompt_with_template_keeps_to_its_limit(room) -> None:
    config = config_of(f"sampling.max_prompt_tokens={room}", "retrieval.tokens=1000")
    tokenizer = tiny.tokenizer()
    count = TokenCounter(tokenizer)
    observer = training_observer(config, "cpu", count)
    assert count.template_tokens(1) > 2 and observer.prompt_tokens < room
    text = ChatText(tokenizer, {})
    for problem in PROBLEMS:
        assert len(text.prompt(observer.observe(problem))[0]) <= room


def test_nothing_of_the_held_out_part_is_shown(tmp_path) -> None:
    held_out = SyntheticSuite().problems(2, split="heldout")[:6]
    entries = [
        dataclasses.replace(
            next(synthetic_entries("triton")),
            reference=problem.source,
            kernel=solve(problem).source,
            problem_id=problem.id,
            form="",
        )
        for problem in held_out
    ]
    others = synthetic_index("triton", "cpu").entries[::4]
    Index.from_entries([*others, *entries]).save(tmp_path / "i")
    config = config_of(f"retrieval.index={tmp_path / 'i'}")
    part = training_retrieval(config, "cpu")
    assert part.hold_out == ("Synthetic:heldout:L2",)
    shown = load_index(part, "triton", "cpu").entries
    whole = load_index(Retrieval(str(tmp_path / "i")), "triton", "cpu").entries
    assert len(shown) < len(whole)
    for problem in held_out:
        own = keys_of(problem)
        for entry in shown:
            other = keys_of_entry(entry)
            assert not any(set(own[reason]) & set(other[reason]) for reason in own)
    # The digest is the whole index's, so that a change of the held-out part is no other index.
    assert part.digest == load_index(Retrieval(str(tmp_path / "i")), "triton", "cpu").digest


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), ("Synthetic:heldout:L2",)),
        (("evaluation.problems=1-3",), ("Synthetic:heldout:1-3",)),
        (("evaluation.split=", "evaluation.levels=[1, 3]"), ("Synthetic::L1,L3",)),
        (("evaluation.split=", "evaluation.suite=runs/other"), ("runs/other::L2",)),
        (("evaluation.split=",), ()),
    ],
)
def test_held_out_part_follows_the_evaluation(settings, expected, monkeypatch) -> None:
    monkeypatch.setattr(
        "kernelgym_train.launch.assembly.ready_retrieval",
        lambda given, *_: Retrieval(**given),
    )
    assert training_retrieval(config_of(*settings), "cpu").hold_out == expected


def test_part_of_a_suite_takes_levels_and_ids() -> None:
    assert {p.level for p in part_of_suite("Synthetic::L1,L3")} == {1, 3}
    assert len(part_of_suite("Synthetic::1-3")) == 9
    with pytest.raises(UsageError, match="unknown split"):
        part_of_suite("Synthetic:held")


def test_index_that_changed_is_refused_on_resume(tmp_path) -> None:
    index = tmp_path / "i"
    Index.from_entries(synthetic_index("triton", "cpu").entries[:90]).save(index)
    config = config_of(f"retrieval.index={index}")
    kept = training_retrieval(config, "cpu")
    about = manifest(config, config.rules, kept)
    assert about["retrieval"] == {"index": str(index), "digest": kept.digest}
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    check_retrieval(tmp_path, training_retrieval(config, "cpu"))
    Index.from_entries(synthetic_index("triton", "cpu").entries[:80]).save(index)
    with pytest.raises(UsageError, match="showed entries of an index with digest"):
        check_retrieval(tmp_path, training_retrieval(config, "cpu"))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (("retrieval.k=0",), "k is a whole number, at least 1"),
        (("retrieval.tokens=0",), "tokens is a whole number"),
        (("retrieval.tokens=9000",), "leaves nothing of sampling.max_prompt_tokens"),
        (("retrieval.when=never",), "retrieval.when"),
        (("retrieval.index=", "evaluation.without_retrieval=true"), "retrieval.index is empty"),
    ],
)
def test_setting_that_makes_no_sense_is_refused(settings, error) -> None:
    with pytest.raises(UsageError, match=error):
        config_of(*settings)


def test_unknown_index_is_refused_before_training() -> None:
    with pytest.raises(UsageError, match="'indexes/none' is not an index"):
        training_observer(config_of("retrieval.index=indexes/none"), "cpu")


def test_steps_write_the_metrics_of_retrieval() -> None:
    config = config_of("env.max_turns=1", "sampling.problems_per_step=2", "sampling.group_size=2")
    judge = ScriptedEvaluator(lambda problem, kernel: verdict("wrong"), ruleset=config.rules)
    steps = make_steps(config, PROBLEMS, judge)
    taken = asyncio.run(steps.take(0, Copies()))
    assert 1.0 < taken.metrics["retrieval/examples"] <= 3.0
    assert taken.metrics["retrieval/verbatim"] == 1.0
    assert isinstance(TokenCounter(tiny.tokenizer()), TokenCounter)
    assert load_config(None).model_dump()["retrieval"]["index"] == ""


def test_short_prompt_shows_entries_too() -> None:
    config = config_of("env.prompt=short", "env.max_turns=1", "retrieval.k=2")
    rollouts, observer, policy = played(config)
    assert all(text.startswith("Write ModelNew") for text in policy.read)
    assert all("## Solved problem 2" in text for text in policy.read)
    record = rollout_record(rollouts[0], observer, episode_rules(config))
    assert len(record.retrieved[0]) == 2
    assert render(read_before(record, 0)) in policy.read


def test_problem_of_another_suite_is_shown_entries_too() -> None:
    mine = Problem("Mine/1", "Mine", 1, "", PROBLEMS[0].source)
    observer = training_observer(config_of(), "cpu")
    ids, _ = observer.retrieved(mine)
    assert len(ids) == 3 and not any(each.startswith(f"{PROBLEMS[0].id}:") for each in ids)
