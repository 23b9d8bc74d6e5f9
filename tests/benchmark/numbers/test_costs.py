"""Tokens, money and the judge's seconds: sums of what is known, and None for what is not."""

from __future__ import annotations

import dataclasses

import pytest

from kernelgym.benchmark.numbers.costs import Usage, judge_time, per_solved, spent
from kernelgym.verdict import Stages
from support.benchmark_runs import RIGHT, WRONG


def test_sums_are_of_what_is_known() -> None:
    found = spent(
        [
            Usage(100, 60, 20, 5, 1.0, 1, 0.5),
            Usage(50, None, 10, None, 3.0, 3, None),
            Usage(tries=2),
        ]
    )
    assert (found.answers, found.counted, found.priced, found.tries) == (3, 2, 1, 6)
    assert (found.prompt, found.cached, found.completion, found.reasoning) == (150, 60, 30, 5)
    assert found.tokens == 180 and found.usd == 0.5 and found.latency_s == 2.0


def test_what_is_unknown_is_not_nothing() -> None:
    found = spent([Usage()])
    assert found.tokens is found.usd is found.latency_s is None
    assert per_solved(None, 3) is None and per_solved(6.0, 0) is None and per_solved(6.0, 3) == 2.0


def test_the_judges_seconds_are_summed_by_stage() -> None:
    one = dataclasses.replace(RIGHT, wall_s=3.0, stages=Stages(build_s=1.0, check_s=1.5))
    found = judge_time([one, dataclasses.replace(WRONG, wall_s=1.0)])
    assert found.total_s == 4.0 and (found.verdicts, found.staged) == (2, 1)
    assert found.stages["build"] == 1.0 and sum(found.stages.values()) == pytest.approx(2.5)
