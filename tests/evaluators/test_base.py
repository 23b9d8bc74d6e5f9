"""The base classes: what a wrapper forwards, and what is derived."""

from __future__ import annotations

import copy
import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from kernelgym.capabilities import Capabilities, DeviceHealth, EvaluatorStatus
from kernelgym.evaluators.abilities import Builds, Duels
from kernelgym.evaluators.base import EvaluatorWrapper
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Evaluator, Job, Kernel
from support.batches import Held, kernel

CLAIMS = st.fixed_dictionaries(
    {
        "timed": st.booleans(),
        "devices": st.lists(st.sampled_from(["cuda:0", "cuda:1"]), max_size=2).map(tuple),
        "device_kind": st.text(max_size=5),
        "isolation": st.text(max_size=5),
        "workers": st.integers(1, 9),
        "memory_bytes": st.none() | st.integers(1, 10**12),
        "languages": st.just(("cpp",)),
        "provenance": st.lists(st.text(max_size=5), max_size=3).map(tuple),
    }
)


class Building(ScriptedEvaluator):
    def build(self, kernel: Kernel) -> None:
        return None

    def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> dict[str, bytes]:
        return {"extension.so": b"x"}

    @property
    def status(self) -> EvaluatorStatus:
        return EvaluatorStatus((DeviceHealth("cpu", True, lost=2),))


@given(CLAIMS, st.sampled_from(sorted(RULESETS)), st.integers(0, 3))
def test_wrappers_of_wrappers_keep_all_capabilities(claims, rules, depth) -> None:
    inner = Building(ruleset=rules, device="cuda:0", **claims)
    evaluator: Evaluator = inner
    for _ in range(depth):
        evaluator = EvaluatorWrapper(evaluator)
    assert isinstance(evaluator, Evaluator)
    assert evaluator.capabilities == inner.capabilities
    assert evaluator.status == inner.status
    assert evaluator.ability(Builds) is inner and evaluator.ability(Duels) is None


def test_capabilities_without_devices_name_the_one() -> None:
    rules = RULESETS["strict"]
    assert Capabilities("cpu", rules).devices == ("cpu",)
    assert dataclasses.replace(Capabilities("cpu", rules), workers=3).devices == ("cpu",)


def test_evaluator_with_workers_judges_that_many_at_once() -> None:
    evaluator = Held(held=True, workers=3)
    found = evaluator.evaluate_iter(Job(SAMPLE_PROBLEM, kernel("wrong", n)) for n in range(9))
    futures = [evaluator.submit(Job(SAMPLE_PROBLEM, kernel("wrong", n))) for n in range(3)]
    while evaluator.at_once < 3:
        pass
    evaluator.go.set()
    assert len(list(found)) == 9 and all(future.result(30) for future in futures)
    assert evaluator.most_at_once == 3


def test_wrapper_closes_only_what_it_owns() -> None:
    inner = ScriptedEvaluator()
    EvaluatorWrapper(inner).close()
    assert not inner.closed
    EvaluatorWrapper(inner, owns=True).close()
    assert inner.closed


def test_evaluator_is_shared_by_copies() -> None:
    evaluator = EvaluatorWrapper(ScriptedEvaluator())
    assert copy.deepcopy({"evaluator": evaluator})["evaluator"] is evaluator
