"""`ToolSession`: the account of calls, and the trajectory that they are turns of."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.answers.python_source import MAX_SOURCE_CHARS
from kernelgym.errors import UsageError
from kernelgym.records.export import sft_rows
from kernelgym.records.rescore import rescore
from kernelgym.serve.refusal import Refusal
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.testing import verdict as scripted
from kernelgym.types import Finding
from kernelgym.verdict import HOST_BUSY
from kernelgym.workspace.session import ToolSession
from support.workspaces import RIGHT, marked, recorded, session, untimed


def call(found: ToolSession, tool: str, source: str = RIGHT):
    return asyncio.run(found.call(tool, source))


def refusal(found: ToolSession, tool: str, source: str = RIGHT) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(found, tool, source)
    return caught.value


def test_calls_are_turns_of_a_trajectory_that_exports_and_rescores(tmp_path) -> None:
    found = session(tmp_path)
    assert call(found, "check", marked("wrong")).status == "wrong"
    assert call(found, "check").correct
    timed = call(found, "time", marked("correct", 2.0))
    assert (timed.speedup, timed.calls_left) == (2.0, 0)
    final = call(found, "submit", marked("correct", 4.0))
    record = recorded(tmp_path / "t.jsonl")
    turns = record.trajectory.turns
    assert [turn.action.split("\n")[0] for turn in turns] == [
        *("kernelgym-tools check", "kernelgym-tools check"),
        *("kernelgym-tools time", "kernelgym-tools submit"),
    ]
    assert (record.trajectory.ended, record.trajectory.horizon) == ("budget", 4)
    assert final.score == turns[-1].score.total > turns[2].score.total
    assert rescore(record, "sparse").trajectory.scores[-1] == 1.0
    assert [row["turn"] for row in sft_rows([record])] == [1, 2, 3]


def test_check_is_not_timed_and_every_other_tool_is(tmp_path) -> None:
    judges = {"untimed": untimed(), "timed": ScriptedEvaluator()}
    found = session(tmp_path, **judges)
    for tool in ("check", "time", "profile", "submit"):
        call(found, tool)
    assert [len(judge.judged) for judge in judges.values()] == [1, 3]


def test_submission_of_a_checked_kernel_is_judged_anew_under_a_seed_of_its_own(tmp_path) -> None:
    verdicts = [scripted("correct", speedup=9.0), scripted("wrong")]
    judge = ScriptedEvaluator(verdicts)
    found = session(tmp_path, timed=judge)
    assert call(found, "time").correct
    assert call(found, "submit").status == "wrong"
    assert judge.seeds[0] == "" and len(judge.seeds[1]) == 32


def test_budget_that_is_used_up_leaves_the_submission(tmp_path) -> None:
    found = session(tmp_path, budget=1)
    call(found, "check")
    assert refusal(found, "time").code == "budget"
    assert call(found, "submit").correct
    assert refusal(found, "submit").code == refusal(found, "check").code == "submitted"
    assert len(recorded(tmp_path / "t.jsonl").trajectory.turns) == 2


@pytest.mark.parametrize("budget", [0, -3])
def test_budget_below_one_is_a_usage_error(tmp_path, budget) -> None:
    with pytest.raises(UsageError, match=f"at least 1; got {budget}"):
        session(tmp_path, budget=budget)


def test_call_that_the_judge_fails_on_is_neither_counted_nor_recorded(tmp_path) -> None:
    found = session(tmp_path)
    told = refusal(found, "check", marked("unavailable"))
    assert (told.status, told.code) == (503, "judge") and "not counted" in told.message
    assert found.calls_left == 3 and not found.calls()
    assert call(found, "check").calls_left == 2


def test_kernel_that_a_busy_host_left_untimed_is_judged_again(tmp_path) -> None:
    busy = scripted("correct", findings=(Finding(HOST_BUSY, "busy"),))
    found = session(tmp_path, timed=ScriptedEvaluator([busy, scripted("correct", speedup=3.0)]))
    assert call(found, "submit").speedup == 3.0
    always = session(tmp_path, timed=(judge := ScriptedEvaluator([busy])))
    assert call(always, "time").speedup == 0.0 and len(judge.judged) == 3


def test_refused_kernel_is_counted_and_not_run(tmp_path) -> None:
    judge = untimed()
    found = session(tmp_path, untimed=judge)
    answer = call(found, "check", "class ModelNew: ...")
    assert (answer.status, answer.calls_left, judge.judged) == ("rejected", 2, [])


def test_kernel_that_is_too_long_is_refused(tmp_path) -> None:
    assert refusal(session(tmp_path), "check", "x" * (MAX_SOURCE_CHARS + 1)).status == 413


def test_language_without_times_offers_neither_time_nor_profile(tmp_path) -> None:
    found = session(tmp_path, timed=None, language="triton")
    assert found.tools == ("check", "submit")
    assert "are not timed on cpu; use check, submit" in refusal(found, "time").message
    assert "known: check, submit" in refusal(found, "lint").message


def test_session_that_is_left_is_recorded_as_cut_if_a_tool_was_called(tmp_path) -> None:
    session(tmp_path).close()
    assert not (tmp_path / "t.jsonl").exists()
    found = session(tmp_path)
    call(found, "check")
    found.close()
    found.close()
    assert recorded(tmp_path / "t.jsonl").trajectory.ended == "cut"


def test_record_in_a_missing_folder_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        session(tmp_path, record=tmp_path / "no" / "t.jsonl")


def test_record_that_is_a_folder_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="give a file as --record"):
        session(tmp_path, record=tmp_path)


def test_profile_tells_more_than_time(tmp_path) -> None:
    note = Finding("fact", "a fact for tuning", "info")
    found = session(tmp_path, timed=ScriptedEvaluator([scripted("correct", findings=(note,))]))
    assert "a fact for tuning" in call(found, "profile").feedback
    assert "a fact for tuning" not in call(found, "time").feedback


@given(st.text(st.characters(exclude_categories=()), max_size=200), st.booleans())
@settings(max_examples=40, deadline=None)
def test_recorded_kernel_is_the_text_that_was_given(tmp_path_factory, text, is_module) -> None:
    source = f"{RIGHT}# {text}" if is_module else text
    found = session(tmp_path_factory.mktemp("session"))
    answer = call(found, "check", source)
    json.dumps(answer.to_dict(), ensure_ascii=False).encode("utf-8")
    (turn,) = found.env.episode.turns
    assert turn.reply.kernel is not None and turn.reply.kernel.source == source
    assert found.problem is SAMPLE_PROBLEM


def test_kernel_whose_text_holds_the_markers_of_an_answer_is_judged_whole(tmp_path) -> None:
    source = f"{RIGHT}\n</KERNEL>\n```\n<think>\n"
    judge = untimed()
    found = session(tmp_path, untimed=judge)
    call(found, "check", f'{RIGHT}\nTEXT = """</KERNEL>\n```\n<think>"""\n')
    call(found, "check", source)
    assert found.env.episode.turns[1].reply.kernel.source == source
