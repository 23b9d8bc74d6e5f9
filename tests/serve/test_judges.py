"""Evaluators by rules: which labels are known, when another evaluator is made and closed."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from kernelgym import UsageError
from kernelgym.rulesets import RULESETS, ruleset, variants, with_run_seconds, with_tolerances
from kernelgym.serve.judges import Judges
from kernelgym.serve.refusal import Refusal
from kernelgym.testing import ScriptedEvaluator
from support.served import job, served

STRICT = RULESETS["strict"]
STOPS = dataclasses.replace(STRICT, stop_at_first_failure=True)


def makes(made: list):
    def make(rules, timing) -> ScriptedEvaluator:
        made.append(ScriptedEvaluator(ruleset=rules, timed=timing))
        return made[-1]

    return make


def asked(label: str = "", timing: bool | None = None) -> dict:
    return {"ruleset": label, "timing": timing}


def test_jobs_of_the_own_rules_are_judged_by_the_own_evaluator() -> None:
    own, made = ScriptedEvaluator(), []
    judges = Judges(own, makes(made))
    for each in (asked(), asked(STRICT.label), asked("", True), asked(STRICT.label, True)):
        assert judges.of(each) is own
    assert not made


def test_evaluator_of_other_rules_is_made_once_by_label_and_timing() -> None:
    made: list = []
    judges = Judges(ScriptedEvaluator(), makes(made))
    for _ in range(2):
        assert judges.of(asked(STOPS.label, False)).capabilities.ruleset == STOPS
        judges.of(asked(RULESETS["kernelbench"].label))
        judges.of(asked("", False))
    assert [each.capabilities.timed for each in made] == [False, True, False]


def test_labels_of_variants_and_tolerances_are_known_and_other_limits_are_not() -> None:
    judges = Judges(ScriptedEvaluator(), makes([]))
    labels = judges.labels()
    assert labels[0] == STRICT.label and STOPS.label in labels
    for label in (*labels, with_tolerances("strict", 1e-3, 1e-3).label):
        assert judges.capabilities(label).ruleset.label == label
    for label in ("strict@00000000", "other@00", with_run_seconds("strict", 1e6).label):
        with pytest.raises(Refusal, match="was asked for; this server has"):
            judges.capabilities(label)


def test_server_that_makes_no_evaluators_knows_its_own_rules_and_timing_alone() -> None:
    judges = Judges(ScriptedEvaluator())
    assert judges.labels() == [STRICT.label]
    with pytest.raises(Refusal, match=f"{STOPS.digest}.*this server has {STRICT.label}"):
        judges.capabilities(STOPS.label)
    with pytest.raises(Refusal, match="times correct kernels"):
        judges.capabilities("", False)


def test_server_that_times_no_kernel_refuses_to() -> None:
    judges = Judges(ScriptedEvaluator(timed=False), makes([]))
    with pytest.raises(Refusal, match="times no kernel"):
        judges.capabilities("", True)


def test_idle_evaluators_are_closed_when_many_are_open_and_busy_ones_are_not() -> None:
    made: list = []
    judges = Judges(ScriptedEvaluator(), makes(made))
    labels = list(variants(STRICT))[1:7]
    for label in labels:
        judges.of(asked(label))
    judges.close_idle([made[0]])
    assert judges.of(asked(labels[0])) is made[0]
    assert all(judges.of(asked(label)) in made for label in labels[3:])
    assert judges.of(asked(labels[1])) not in made[:6]


def test_jobs_of_one_batch_are_judged_by_their_own_rules(tmp_path) -> None:
    made: list = []

    async def go() -> None:
        async with served(tmp_path, make=makes(made)) as (client, _):
            jobs = [job(), job(ruleset=STOPS.label), job(ruleset=STOPS.label, timing=False)]
            answer = await client.post("/v1/jobs?wait=20", json={"jobs": jobs})
            assert answer.status_code == 200
            told = await client.get(f"/v1/info?ruleset={STOPS.label}&timing=false")
            assert told.json()["ruleset"] == STOPS.label
            assert told.json()["capabilities"]["timed"] is False
            wrong = await client.get("/v1/info?ruleset=strict@00000000")
            assert wrong.status_code == 422 and "strict@00000000" in wrong.text

    asyncio.run(go())
    assert [each.capabilities.ruleset for each in made] == [STOPS, STOPS]
    assert [len(each.judged) for each in made] == [1, 1]


def test_evaluator_that_cannot_be_made_is_an_error_of_the_job(tmp_path) -> None:
    def make(rules, timing):
        raise UsageError("the device is gone")

    async def go() -> None:
        async with served(tmp_path, make=make) as (client, _):
            jobs = [job(ruleset=STOPS.label), job()]
            found = (await client.post("/v1/jobs?wait=20", json={"jobs": jobs})).json()["jobs"]
            assert found[0]["error"]["message"] == "the device is gone"
            assert found[1]["verdict"]["status"] == "correct"

    asyncio.run(go())


def test_label_of_a_variant_names_its_ruleset() -> None:
    assert ruleset(STOPS.label) == STOPS
