"""Choices between rules and writer, and of what a writer is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelgym_train.mcgs.writing.asks import RULES, WRITER
from kernelgym_train.mcgs.writing.choosing import better_arm

RESULTS = st.lists(
    st.tuples(st.sampled_from([RULES, WRITER]), st.floats(0.0, 2.0), st.floats(0.0, 100.0)),
    max_size=40,
)


def played(rounds: int, gains: dict[str, float], seconds: dict[str, float]) -> dict[str, int]:
    """Let the bandit choose among arms that always gain the same; return the choices."""
    results: list[tuple[str, float, float]] = []
    for _ in range(rounds):
        arm = better_arm(results)
        results.append((arm, gains[arm], seconds[arm]))
    return {name: sum(arm == name for arm, *_ in results) for name in (RULES, WRITER)}


def test_arm_that_gains_more_per_second_is_preferred() -> None:
    same = {RULES: 5.0, WRITER: 5.0}
    chosen = played(60, {RULES: 0.0, WRITER: 0.1}, same)
    assert chosen[WRITER] > 2 * chosen[RULES] > 0
    chosen = played(60, {RULES: 0.1, WRITER: 0.1}, {RULES: 2.0, WRITER: 40.0})
    assert chosen[RULES] > 2 * chosen[WRITER] > 0


@given(RESULTS)
def test_each_arm_is_tried_first(results: list[tuple[str, float, float]]) -> None:
    tried = {arm for arm, *_ in results}
    chosen = better_arm(results)
    assert chosen in (RULES, WRITER)
    if len(tried) < 2:
        assert chosen not in tried
        assert better_arm(results, [WRITER, RULES]) in (RULES, WRITER)


def test_attempt_without_a_result_counts_as_tried() -> None:
    assert better_arm([]) == WRITER
    assert better_arm([], [WRITER]) == RULES
