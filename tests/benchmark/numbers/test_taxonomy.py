"""What went wrong: names of failures, what followed them, and messages that recur."""

from __future__ import annotations

import pytest

from kernelgym.benchmark.numbers.taxonomy import (
    blind_rate,
    failure_of,
    frequent_messages,
    message_kind,
    next_statuses,
    repair_rate,
    solved_by_turn,
    statuses_by_turn,
)
from kernelgym.types import Status, Verdict
from support.benchmark_runs import CHEAT, made, spell


def failed(message: str, status: Status = Status.RUNTIME_ERROR) -> Verdict:
    return Verdict(status, compiled=True, trials=1, message=message)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("NameError: name 'result_y' is not defined", "runtime: NameError"),
        ("IndexError: out-of-bounds load", "runtime: IndexError"),
    ],
)
def test_a_failure_is_named_by_its_error(message: str, name: str) -> None:
    assert failure_of(made([failed(message)]).turns[0]) == name


def test_a_refusal_is_named_by_its_finding() -> None:
    assert failure_of(made([CHEAT]).turns[0]) == "policy: no_custom_kernel"


def test_statuses_are_counted_by_turn_and_follower() -> None:
    episodes = spell("wr wwr r x")
    assert [dict(each) for each in statuses_by_turn(episodes)] == [
        {"wrong": 2, "correct": 1, "unavailable": 1},
        {"correct": 1, "wrong": 1},
        {"correct": 1},
    ]
    followed = next_statuses(episodes)
    assert followed["wrong"] == {"correct": 2, "wrong": 1}
    assert followed["correct"] == {"end": 3}


def test_repairs_and_blind_tries_by_hand() -> None:
    groups = {"A": spell("wr wwr r ww"), "B": spell("ww wx")}
    repairs, blind = repair_rate(groups), blind_rate(groups)
    assert repairs is not None and (repairs.value, repairs.n) == (pytest.approx(2 / 5), 5)
    # A: each of three failures would be replaced by one right of three others; B: by none of one.
    assert blind is not None and (blind.value, blind.n) == (pytest.approx(1 / 5), 5)
    assert repair_rate({"A": spell("r w")}) is None


def test_solved_by_turn_never_falls() -> None:
    rates = solved_by_turn({"A": spell("wr wwr r ww"), "B": spell("www r- x")})
    assert [rate.value for rate in rates] == pytest.approx([1 / 5, 2 / 5, 3 / 5])
    assert {rate.n for rate in rates} == {5} and not solved_by_turn({})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/tmp/a/x.cu:12:3: error: no type 'T'", "/tmp/b/y9.cu:7: error: no type 'T'"),
        ("RuntimeError: 3 of 7 at 0x7ffe", "RuntimeError: 5 of 9 at 0x01"),
        ("\n\nIndexError: 4", "IndexError: 5\nmore"),
    ],
)
def test_one_mistake_gives_one_text(one: str, other: str) -> None:
    kinds = {message_kind(failed(message)).replace("y9", "x") for message in (one, other)}
    assert len(kinds) == 1 and kinds != {""}


def test_frequent_messages_come_first() -> None:
    episodes = [
        made([failed(f"IndexError: {n}") for n in range(3)]),
        made([failed("TypeError: x")]),
    ]
    turns = [turn for each in episodes for turn in each.turns]
    found = frequent_messages(turns, [Status.RUNTIME_ERROR], most=1)
    assert [(kind, count) for kind, count, _ in found] == [("IndexError: N", 3)]
    assert found[0][2] is episodes[0].turns[0]
    assert not frequent_messages(turns, [Status.COMPILE_ERROR])
