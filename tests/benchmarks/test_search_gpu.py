"""The GPU search benchmark: its tasks can be searched, and its goals are met by what it says."""

from __future__ import annotations

import pytest

from benchmarks.page.models import gpu_searches
from benchmarks.search.gpu import GOALS, reached
from benchmarks.search.gpu_kernels import OWN_TASKS
from kernelgym_train.mcgs.session import rules_for
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.variant import read_variant


@pytest.mark.parametrize("name", OWN_TASKS)
def test_gpu_task_has_a_move_that_changes_the_whole_kernel(name: str) -> None:
    task = task_of(*OWN_TASKS[name], name)
    knobs = rules_for(task, False).space().knobs
    assert any(knob.tried_first for knob in knobs)
    assert read_variant(task.start).kernel() == task.start


def test_goals_are_of_the_median_over_seeds() -> None:
    rows = [
        {"task": "softmax", "algorithm": "tpe", "seed": seed, "floor_share": share}
        for seed, share in enumerate((0.5, 0.96, 0.97))
    ]
    assert reached(rows, "tpe") == {"softmax": True}
    assert reached(rows[:1], "tpe") == {"softmax": False} and set(GOALS) >= {"softmax"}


def test_page_tells_each_search() -> None:
    row = {
        **{"task": "softmax", "algorithm": "tpe", "speedup": 3.0, "speedup_low": 2.9},
        **{"speedup_high": 3.1, "over_torch": 1.6, "floor_share": 0.99, "evaluations": 4},
        "seconds": 31.2,
    }
    told = gpu_searches({"rows": [row]})
    assert "softmax 3.00 times over its start and 1.60 of torch after 4 evaluations" in told
