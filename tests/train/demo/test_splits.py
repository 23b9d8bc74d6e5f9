"""The demonstration's problems: parts that share nothing, held out for the reason they claim."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym.suites.synthetic import canonical_form
from kernelgym.types import Problem
from kernelgym_train.demo.splits import (
    COMPOSED,
    FAMILIES,
    PLAIN_FAMILIES,
    PLAIN_OPERATORS,
    UNSEEN,
    Scope,
    draw_splits,
    operators_of,
)

TABLES = ("warmstart", "rl", "compositions", "shapes", "composed", "unseen_operator")
SEEDS = st.integers(-(10**9), 10**9)
SHORT = Scope(300, 1500, operators=PLAIN_OPERATORS, longest=2)


def forms(problems: tuple[Problem, ...]) -> set[str]:
    return {canonical_form(problem) for problem in problems}


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_no_two_parts_share_a_canonical_form(seed: int) -> None:
    splits = draw_splits(seed, Scope(300))
    for one, other in combinations(TABLES, 2):
        assert not forms(getattr(splits, one)) & forms(getattr(splits, other))
    for name in TABLES:
        problems = getattr(splits, name)
        assert problems or name == "composed"
        assert {problem.family for problem in problems} <= set(FAMILIES)
    for name in TABLES[2:]:
        problems = getattr(splits, name)
        assert len(forms(problems)) == len(problems), "held-out problems are clusters of their own"


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_each_table_is_held_out_for_its_reason(seed: int) -> None:
    splits = draw_splits(seed, Scope(300))
    shown = {operator for p in splits.warmstart for operator in operators_of(p)}
    alone = {operator for p in splits.warmstart if p.level == 1 for operator in operators_of(p)}
    for problem in splits.compositions:
        assert problem.level == 2
        assert 2 <= len(canonical_form(problem).split()) <= Scope().longest
        assert operators_of(problem) <= shown
    for problem in splits.shapes:
        assert problem.level == 1
        assert operators_of(problem) <= alone
    for problem in (*splits.compositions, *splits.shapes):
        assert COMPOSED not in operators_of(problem)
    for problem in splits.composed:
        assert COMPOSED in operators_of(problem) and operators_of(problem) <= shown
    assert splits.withheld in UNSEEN
    assert all(splits.withheld in operators_of(problem) for problem in splits.unseen_operator)
    for name in TABLES[:-1]:
        assert not any(splits.withheld in operators_of(p) for p in getattr(splits, name))


def test_plain_operators_and_short_chains_on_request() -> None:
    splits = draw_splits(1, SHORT)
    for name in TABLES:
        for problem in getattr(splits, name):
            assert operators_of(problem) <= {*PLAIN_OPERATORS, splits.withheld}
            assert problem.level == 1 or len(canonical_form(problem).split()) == 2


def test_families_and_operands_may_be_limited() -> None:
    every = draw_splits(1, Scope(300, 1500))
    splits = draw_splits(1, Scope(300, 1500, families=PLAIN_FAMILIES, operands=1))
    for name in TABLES:
        for problem in getattr(splits, name):
            assert problem.family in PLAIN_FAMILIES
            forward = problem.source.partition("def forward(self, ")[2].partition(")")[0]
            assert len(forward.split(", ")) <= 2, "the first tensor and one beside it"
        assert forms(getattr(splits, name)) <= forms(getattr(every, name))
    assert set(splits.rl) < set(every.rl)


def test_the_warm_start_alone_may_show_longer_chains() -> None:
    short = draw_splits(1, SHORT)
    splits = draw_splits(1, dataclasses.replace(SHORT, longest_shown=3))
    lengths = {len(canonical_form(p).split()) for p in splits.warmstart if p.level == 2}
    assert lengths == {2, 3}
    assert splits.rl == short.rl and set(short.warmstart) < set(splits.warmstart)
    assert not forms(splits.warmstart) & forms((*splits.rl, *splits.compositions))


def test_a_seed_gives_the_same_problems_and_another_gives_others() -> None:
    first, again, other = (
        draw_splits(3, Scope(300)),
        draw_splits(3, Scope(300)),
        draw_splits(4, Scope(300)),
    )
    assert first == again
    assert not set(first.warmstart) & set(other.warmstart)


def test_too_few_problems_are_refused() -> None:
    with pytest.raises(UsageError, match="raise Scope"):
        draw_splits(0, Scope(2))


def test_operators_are_the_canonical_forms_words() -> None:
    problems = draw_splits(0, Scope(300)).warmstart
    fused = next(p for p in problems if p.level == 2 and ":row" in canonical_form(p))
    assert operators_of(fused) == set(canonical_form(fused).split())
    single = next(p for p in problems if p.level == 1)
    assert len(operators_of(single)) == 1
