"""Rows to train on: which answers are examples, which pairs are made, and what they follow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.context import CONTEXTS
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import Observer, render
from kernelgym.prompts.parts import Room
from kernelgym.prompts.short import ShortObserver
from kernelgym.records.export import (
    ExportRules,
    completion_rows,
    preference_rows,
    read_before,
    sft_rows,
)
from kernelgym.records.observer_settings import observer_settings, recorded_observer
from kernelgym.records.rescore import rescore
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.rewards import REWARDS
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.tokens import estimate_tokens
from kernelgym.types import Finding, Kernel, Problem, Severity, Status, Turn, Verdict, text_digest
from support.strategies import texts, verdicts

OTHER = Problem("own/2", "own", 1, "other", SAMPLE_PROBLEM.source + "\n# other\n")
STRICT = RULESETS["strict"]


def variant(number: int) -> str:
    source = SAMPLE_KERNELS["cpp"].source + f"\n# variant {number}\n"
    return reply(Kernel(source, "cpp"), f"Thought {number}.")


def untidy(number: int) -> str:
    return variant(number).partition("</KERNEL>")[0]


def episode(
    *steps: tuple[str, Verdict],
    problem: Problem = SAMPLE_PROBLEM,
    reward: str = "stage2",
    stop_when: str = "never",
    **observed: Any,
) -> EpisodeRecord:
    """Return the record of an episode in which these texts got these verdicts."""
    game = Episode(
        problem,
        EpisodeConfig(
            language="cpp", ruleset=STRICT, reward=reward, max_turns=4, stop_when=stop_when
        ),
    )
    observer = Observer("cpp", "cpu", STRICT, 4, **observed)
    read_digests = []
    for text, found in steps:
        if game.over:
            break
        read_digests.append(text_digest(render(observer.observe(problem, game.turns))))
        read = game.read(text)
        game.record(text, found if isinstance(read, Kernel) else read)
    return EpisodeRecord(
        game.trajectory, "cpp", "cpu", STRICT.label, reward, stop_when,
        observer=observer_settings(observer), observations=tuple(read_digests),
    )  # fmt: skip


def wrong(passed: int = 0) -> Verdict:
    return verdict("wrong", trials_passed=passed)


def right(speedup: float | None = None) -> Verdict:
    return verdict("correct", speedup=speedup)


def texts_of(rows: Sequence[dict[str, Any]], side: str = "chosen") -> list[str]:
    return [row[side][-1]["content"] for row in rows]


# -- supervised ----------------------------------------------------------------------------------


def test_an_example_is_a_conversation_that_was_held() -> None:
    record = episode((variant(1), wrong()), (variant(2), right()))
    (row,) = sft_rows([record])
    roles = [message["role"] for message in row["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert row["messages"][-1]["content"] == variant(2)  # the whole text, thinking included
    assert "variant 1" in row["messages"][2]["content"]
    assert SAMPLE_PROBLEM.source.strip() in row["messages"][1]["content"]
    assert (row["problem_id"], row["turn"]) == (SAMPLE_PROBLEM.id, 1)
    assert row["value"] == record.trajectory.scores[1]
    (split,) = completion_rows([record])
    assert split["prompt"] + split["completion"] == row["messages"]
    assert len(split["completion"]) == 1


def test_what_is_no_example() -> None:
    hard = Finding("cheat", "it cheats", Severity.HARD)
    record = episode(
        ("no kernel here", right()),
        (variant(1), verdict("rejected")),
        (variant(2), dataclasses.replace(right(), findings=(hard,))),
        (untidy(3), right()),
    )
    assert list(sft_rows([record])) == []
    assert texts_of(list(sft_rows([record], ExportRules(untidy=True))), "messages") == [untidy(3)]
    record = episode((variant(1), wrong(3)), (variant(2), verdict("unavailable")))
    assert list(sft_rows([record])) == []
    assert texts_of(list(sft_rows([record], ExportRules(wrong=True))), "messages") == [variant(1)]


def test_a_failing_judge_takes_the_returns_of_its_whole_episode() -> None:
    record = episode((variant(1), right()), (variant(2), verdict("unavailable")))
    assert len(list(sft_rows([record]))) == 1
    assert list(sft_rows([record], ExportRules(by="return"))) == []


def test_episode_cut_has_no_values_by_return() -> None:
    """What would have followed its last turn is missing from its returns."""
    whole = episode((variant(1), wrong()), (variant(2), right()), stop_when="correct")
    left = episode((variant(3), wrong()), (variant(4), wrong()), stop_when="correct")
    cut = dataclasses.replace(left, trajectory=dataclasses.replace(left.trajectory, ended="cut"))
    rules = ExportRules(by="return", wrong=True)
    assert len(list(preference_rows([whole, left], rules))) == 1
    assert list(preference_rows([whole, cut], rules)) == []
    assert (
        list(sft_rows([cut], rules)) == []
        and len(list(sft_rows([cut], ExportRules(wrong=True)))) == 2
    )


def test_examples_are_not_repeated_and_can_be_limited() -> None:
    one = episode((variant(1), right(1.2)), reward="stage3")
    two = episode((variant(1), right(1.2)), (variant(2), right(3.0)), reward="stage3")
    other = episode((variant(3), right()), problem=OTHER, reward="stage3")
    rows = list(sft_rows([one, two, other]))
    assert texts_of(rows, "messages") == [variant(1), variant(2), variant(3)]
    rows = list(sft_rows([one, two, other], ExportRules(most=1)))
    assert texts_of(rows, "messages") == [variant(2), variant(3)]
    least = two.trajectory.scores[1]
    assert texts_of(list(sft_rows([one, two], ExportRules(least=least))), "messages") == [
        variant(2)
    ]


# -- preferences ---------------------------------------------------------------------------------


def test_pairs_follow_one_prompt() -> None:
    group = [
        episode((variant(1), right(2.0)), reward="stage3"),
        episode((variant(2), wrong(3)), reward="stage3"),
        episode(("no kernel", wrong()), (variant(3), right()), reward="stage3"),
        episode((variant(4), wrong()), problem=OTHER, reward="stage3"),
    ]
    (row,) = preference_rows(group)
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert texts_of([row]) == [variant(1)] and texts_of([row], "rejected") == ["no kernel"]
    assert row["value_chosen"] == group[0].trajectory.scores[0]
    assert row["value_rejected"] == group[2].trajectory.scores[0] < 0
    assert row["problem_id"] == SAMPLE_PROBLEM.id


def test_pairs_of_one_problem_follow_its_first_prompt() -> None:
    record = episode((variant(1), wrong()), (variant(2), right()))
    assert list(preference_rows([record])) == []
    (row,) = preference_rows([record], ExportRules(pairs="problem"))
    assert texts_of([row]) == [variant(2)] and texts_of([row], "rejected") == [variant(1)]
    first = read_before(record, 0)
    assert [message["content"] for message in row["prompt"]] == [m.content for m in first]


def test_the_best_meets_the_worst_and_no_answer_twice() -> None:
    group = [
        episode((variant(number), found), reward="stage3")
        for number, found in enumerate([right(1.1), right(4.0), wrong(), wrong(2), wrong(3)])
    ]
    rows = list(preference_rows(group, ExportRules(most=9)))
    assert texts_of(rows) == [variant(1), variant(0)]
    assert texts_of(rows, "rejected") == [variant(2), variant(3)]


def test_a_margin_keeps_near_answers_apart() -> None:
    group = [episode((variant(n), right(s)), reward="stage3") for n, s in enumerate((2.0, 2.2))]
    gap = group[1].trajectory.scores[0] - group[0].trajectory.scores[0]
    (row,) = preference_rows(group, ExportRules(margin=gap))
    assert texts_of([row]) == [variant(1)]
    assert list(preference_rows(group, ExportRules(margin=gap * 1.01))) == []
    same = [episode((variant(n), right()), reward="stage2") for n in range(2)]
    assert list(preference_rows(same)) == []


def test_answers_scored_or_judged_differently_are_not_compared() -> None:
    good, bad = episode((variant(1), right())), episode((variant(2), wrong()))
    assert len(list(preference_rows([good, bad]))) == 1
    for change in ({"reward": "stage1"}, {"device": "cuda:0"}):
        other = dataclasses.replace(bad, **change, observations=())
        assert list(preference_rows([good, other])) == []


def test_by_return_the_turn_that_led_to_success_counts() -> None:
    led = episode((variant(1), wrong()), (variant(2), right()), stop_when="correct")
    stuck = episode((variant(3), wrong()), (variant(4), wrong()), stop_when="correct")
    rules = ExportRules(by="return", wrong=True, gamma=0.5)
    (row,) = preference_rows([led, stuck], rules)
    assert texts_of([row]) == [variant(1)] and texts_of([row], "rejected") == [variant(3)]
    assert list(preference_rows([led, stuck], dataclasses.replace(rules, by="score"))) == []


def test_a_wrong_answer_with_the_higher_return_is_not_preferred_to_a_correct_one() -> None:
    led = episode((variant(1), wrong(3)), (variant(2), right()), stop_when="correct")
    late = episode(*((variant(n), wrong()) for n in (3, 4, 5)), (variant(6), right()))
    rules = ExportRules(by="return", wrong=True, gamma=0.9, pairs="problem", most=9)
    assert led.trajectory.returns(0.9)[0] > late.trajectory.returns(0.9)[3]
    sides = [
        (row["chosen"][0]["content"], row["rejected"][0]["content"])
        for row in preference_rows([led, late], rules)
    ]
    assert sides and all(variant(6) != rejected for _, rejected in sides)


steps = st.lists(
    st.tuples(texts | st.integers(0, 4).map(variant) | st.just(untidy(5)), verdicts()), max_size=4
)


@given(st.lists(steps, max_size=4), st.builds(
    ExportRules,
    by=st.sampled_from(["score", "return"]),
    wrong=st.booleans(),
    untidy=st.booleans(),
    margin=st.sampled_from([0.0, 0.2]),
    pairs=st.sampled_from(["prompt", "problem"]),
    most=st.sampled_from([None, 1, 3]),
))  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_no_row_teaches_what_it_must_not(played, rules) -> None:
    records = [episode(*each, reward="stage3", examples="zero_shot") for each in played]
    turns: dict[str, list[Turn]] = {}
    for record in records:
        for turn in record.trajectory.turns:
            turns.setdefault(turn.action, []).append(turn)

    def honest(turn: Turn) -> bool:
        bad = (Status.NO_KERNEL, Status.REJECTED, Status.UNAVAILABLE)
        return turn.reply.kernel is not None and turn.verdict.status not in bad

    examples = list(sft_rows(records, rules))
    for row in examples:
        assert json.loads(json.dumps(row)) == row
        said = turns[row["messages"][-1]["content"]]
        assert any(honest(turn) and (rules.wrong or turn.verdict.correct) for turn in said)
        assert rules.untidy or not said[0].reply.defects
        assert [message["role"] for message in row["messages"]][-1] == "assistant"
    for row in preference_rows(records, rules):
        chosen, rejected = (row[side][0]["content"] for side in ("chosen", "rejected"))
        assert chosen != rejected and row["prompt"][-1]["role"] == "user"
        assert row["value_chosen"] - row["value_rejected"] >= rules.margin
        assert row["value_chosen"] > row["value_rejected"]
        assert any(honest(turn) for turn in turns[chosen])
        assert any(turn.verdict.correct for turn in turns[chosen]) or not all(
            turn.verdict.correct for turn in turns[rejected]
        )


# -- what was read -------------------------------------------------------------------------------


def test_prompts_that_were_not_read_are_refused() -> None:
    record = episode((variant(1), right()), examples="zero_shot")
    changed = dataclasses.replace(record, observer={"examples": "one_shot"})
    with pytest.raises(UsageError, match=r"before turn 1.*is not what its observer shows now"):
        list(sft_rows([changed]))
    assert len(list(sft_rows([changed], ExportRules(checked=False)))) == 1
    assert len(list(sft_rows([dataclasses.replace(changed, observations=())]))) == 1
    right_one = Observer("cpp", "cpu", STRICT, 4, "zero_shot")
    assert len(list(sft_rows([changed], observer_of=lambda _: right_one))) == 1


def test_observers_come_back_from_their_settings() -> None:
    hardware = Hardware("NVIDIA H200", "sm_90", memory_bytes=1)
    record = episode((variant(1), right()), hardware=hardware, examples=0)
    record = EpisodeRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert recorded_observer(record) == Observer("cpp", "cpu", STRICT, 4, 0, hardware)
    assert len(list(sft_rows([record]))) == 1
    assert observer_settings(Observer("cpp", "cpu")) == {}


def test_short_observers_come_back_by_name() -> None:
    observer = ShortObserver("cpp", "cpu", STRICT, 4, context_tokens=900, count=len)
    assert observer_settings(observer) == {"prompt": "short", "context_tokens": 900}
    played = episode((variant(1), right()))
    record = dataclasses.replace(played, observer=observer_settings(observer), observations=())
    found = recorded_observer(EpisodeRecord.from_dict(json.loads(json.dumps(record.to_dict()))))
    assert found == dataclasses.replace(observer, count=estimate_tokens)
    (row,) = sft_rows([record])
    assert row["messages"][0]["content"].startswith("Write ModelNew with C++ kernels.")
    with pytest.raises(UnknownName, match="unknown prompt 'shrot'"):
        recorded_observer(dataclasses.replace(record, observer={"prompt": "shrot"}))


def test_observers_of_other_classes_are_named() -> None:
    class Mine(Observer):
        pass

    settings_ = observer_settings(Mine("cpp", "cpu"))
    record = dataclasses.replace(episode((variant(1), right())), observer=settings_)
    with pytest.raises(UsageError, match=r"used .*Mine, which a file cannot bring back"):
        recorded_observer(record)


def test_prompts_cut_by_another_counter_are_refused() -> None:
    turns = ((variant(0), wrong()), (variant(1), right()))
    (row,) = sft_rows([episode(*turns, count=lambda text: len(text) // 5)])
    assert row["turn"] == 1
    cut = episode(*turns, count=lambda text: 100 * len(text))
    with pytest.raises(UsageError, match="not what its observer shows now"):
        list(sft_rows([cut]))


def note(problem: Problem, turns: Sequence[Turn], room: Room) -> str:
    return "# A note\n\nMind the edges."


def test_observers_that_a_file_cannot_bring_back_are_named() -> None:
    record = episode((variant(1), right()), parts=(note,))
    with pytest.raises(UsageError, match=r"used .*test_export:note.*give the observer"):
        list(sft_rows([record]))
    given_one = Observer("cpp", "cpu", STRICT, 4, parts=(note,))
    (row,) = sft_rows([record], observer_of=lambda _: given_one)
    assert "Mind the edges" in row["messages"][1]["content"]
    with pytest.raises(UsageError, match=r"none of those that ship \(strict@"):
        recorded_observer(dataclasses.replace(record, ruleset="mine@1"))
    for settings_ in ({"parts": {"type": "os:system"}}, {"parts": {"type": "kernelgym.cli:main"}}):
        with pytest.raises(UnknownName, match="unknown type of an observer's setting"):
            recorded_observer(dataclasses.replace(record, observer=settings_))
    with pytest.raises(UsageError, match="no observer has: colour"):
        recorded_observer(dataclasses.replace(record, observer={"colour": "red"}))


def test_records_without_a_source_are_refused() -> None:
    record = EpisodeRecord.from_dict(episode((variant(1), right())).to_dict(source=False))
    with pytest.raises(UsageError, match="put it back with"):
        list(sft_rows([record]))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"by": "luck"}, "unknown value 'luck'"),
        ({"pairs": "twins"}, "unknown kind of pair"),
        ({"gamma": 2.0}, "gamma must lie"),
        ({"margin": -1.0}, "margin must be"),
        ({"most": 0}, "most must be"),
        ({"variant": "mean"}, "unknown variant"),
    ],
)
def test_rules_that_make_no_sense(fields, said) -> None:
    with pytest.raises(UsageError, match=said):
        ExportRules(**fields)
    assert issubclass(UnknownName, UsageError)


@pytest.mark.parametrize("name", sorted(CONTEXTS))
def test_what_was_read_does_not_depend_on_the_reward(name) -> None:
    """So an episode that is scored anew can still be exported, whatever its context policy."""
    steps = [
        (variant(0), verdict("compile_error")), (untidy(1), wrong(2)), (variant(2), wrong(2)),
        (variant(3), verdict("runtime_error")),
    ]  # fmt: skip
    for context in (name, CONTEXTS[name]):
        record = episode(*steps, reward="stage2", context=context, examples=0)
        record = EpisodeRecord.from_dict(json.loads(json.dumps(record.to_dict())))
        found = [read_before(record, turn) for turn in range(4)]
        for reward in REWARDS:
            scored = rescore(record, reward)
            assert [read_before(scored, turn) for turn in range(4)] == found, reward
