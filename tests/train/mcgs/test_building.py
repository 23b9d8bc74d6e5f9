"""States whose machine code is another one's: one node, one measurement."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.search.texts import TextProposer
from kernelgym import AwaitedEvaluator, Kernel, Problem
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Build, Verdict
from kernelgym.verdict import Stages
from kernelgym_train.mcgs.build_groups import BuildGroups, BuildMember
from kernelgym_train.mcgs.building import StateJudge, build_key
from kernelgym_train.mcgs.events import SearchEvent, read_events
from kernelgym_train.mcgs.kernel_file import read_kernel_file
from kernelgym_train.mcgs.moves.definition import RISKS
from kernelgym_train.mcgs.static_priors import REPORT_FLAG
from kernelgym_train.mcgs.variant import launch_key, plain_variant, read_variant
from support import searches
from support.searches import TASK

START = read_variant(TASK.start)
REST = {"floor_share": 0.0, "speedup_low": 0.0, "build_s": 0.0, "message": ""}
"""Fields of a verdict's event that these tests do not look at."""


def without(text: str) -> str:
    """Leave out what the made-up compiler ignores: directives, and flags but for a level."""
    return re.sub(r"#pragma.*|-[fm][-\w=]+", "", text)


def code_of(kernel: Kernel) -> Build:
    """Return what the made-up compiler makes of a kernel."""
    file = read_kernel_file(kernel.source)
    flags = sorted(flag for flag in file.flags if flag.startswith("-O"))
    return Build(digest=Kernel(f"{without(file.cpp)}{flags}", "cpp").digest)


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    found = searches.judged(problem, Kernel(without(kernel.source), "cpp"))
    return dataclasses.replace(found, build=code_of(kernel))


class Building(ScriptedEvaluator):
    """Builds without judging, too."""

    built = 0

    def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> dict[str, bytes]:
        return {}

    def build(self, kernel: Kernel) -> Build | None:
        if REPORT_FLAG in kernel.source:
            return None  # what a report says of the start would change the search
        self.built += 1
        return code_of(kernel)


def found(outdir: Path) -> list[dict]:
    """Return what came of each evaluation, without times."""
    events = read_events(outdir / "kernels/matmul/events.jsonl")
    kept = ("key", "twin", "build", "status", "value")
    return [{k: e.fields.get(k) for k in kept} for e in events if e.name == "judged"]


def test_same_code_is_one_node_and_is_charged(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator(judged)
    result = searches.run(tmp_path, evaluator, builds=12, workers=1, algo="random")
    rows = found(tmp_path)
    twins = [row for row in rows if row["twin"]]
    assert twins and result["twins"] == len(twins) and result["evaluations"] == len(rows) == 12
    nodes = {row["key"]: row for row in rows if not row["twin"]}
    start = searches.empty_state(START).start
    for row in twins:
        value = 0.0 if row["twin"] == start else nodes[row["twin"]]["value"]
        assert row["status"] == "same_code" and row["value"] == value
    codes = [row["build"] for row in nodes.values()]
    assert len(codes) == len(set(codes))
    again = searches.run(tmp_path, evaluator, builds=12, workers=1, algo="random", resume=True)
    assert again == result


def test_known_code_is_not_judged_again(tmp_path: Path) -> None:
    """Built first, twins cost no verdict; what is found stays the same."""
    plain, building = ScriptedEvaluator(slow), Building(slow)
    for evaluator in (plain, building):
        given = {"workers": 3, "algo": "random", "seed": 5, "together": False}
        searches.run(tmp_path / type(evaluator).__name__, evaluator, **given)
    rows = found(tmp_path / "ScriptedEvaluator")
    assert rows == found(tmp_path / "Building")
    twins = sum(bool(row["twin"]) for row in rows)
    assert building.built == 12 and twins
    assert len(plain.judged) - len(building.judged) == twins


def slow(problem: Problem, kernel: Kernel) -> Verdict:
    return dataclasses.replace(judged(problem, kernel), wall_s=2.0)


def test_launch_and_code_make_the_key() -> None:
    comments = dataclasses.replace(START, source="# a comment\n" + START.source)
    other = dataclasses.replace(START, source=START.source.replace("forward(self, ", "forward(_, "))
    assert other.source != START.source
    one, two = Build(digest="a" * 32), Build(digest="b" * 32)
    launch = launch_key(START)
    assert launch_key(comments) == launch != launch_key(other)
    assert build_key(launch, one) != build_key(launch, two)
    assert build_key(launch_key(other), one) != build_key(launch, one)
    assert build_key(launch, None) == build_key(launch, Build()) == ""


CASES = st.lists(
    st.tuples(
        st.sampled_from("abc"),  # code
        st.sampled_from(("exact", "reassociates", "approximate")),
        st.booleans(),  # correct
        st.floats(-1.0, 2.0),
    ),
    min_size=1,
    max_size=12,
)


@given(cases=CASES, order=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_twins_share_a_node_of_no_more_risk(cases: list, order) -> None:
    """A twin has an older state's value, and no risk is hidden."""
    state = searches.empty_state(START)
    keys = [f"{number:032x}" for number in range(len(cases))]
    outcome: dict[str, tuple[bool, float]] = {}
    for number, (key, (_, risk, _, _)) in enumerate(zip(keys, cases, strict=True)):
        fields = {"key": key, "node": state.start, "move": "m", "attempt": number, "links": []}
        fields |= {"variant": plain_variant(START), "risk": risk}
        state.take(event("proposed", fields))
    for key, (code, _, correct, value) in zip(keys, cases, strict=True):
        twin = state.twin(key, code)
        if twin is None:
            outcome[key] = (correct, value)
            given_value = value if correct else None
        else:
            assert keys.index(twin) < keys.index(key) and not state.is_safer(key, twin)
            correct, value = outcome[key] = outcome[twin]
            given_value = value if correct else None
        fields = {"key": key, "build": code, "twin": twin, "value": given_value, "wall_s": 0.0}
        status = "same_code" if twin else "correct" if correct else "wrong"
        state.take(event("judged", fields | {"status": status, **REST}))
    graph = state.graph
    assert set(keys) == (set(graph.nodes) | graph.failed | set(graph.twins)) - {state.start}
    assert len(state.history) == state.evaluations == len(cases)
    action = graph.action(state.start, "m")
    assert sum(action.visits.values()) + action.failures == action.passes == len(cases)
    assert action.in_flight == 0
    for code in {case[0] for case in cases}:
        same = [
            (RISKS.index(case[1]), key)
            for key, case in zip(keys, cases, strict=True)
            if case[0] == code
        ]
        assert state.builds[code] == min(same)[1]  # of those of least risk the oldest


def event(name: str, fields: dict) -> SearchEvent:
    return SearchEvent(0, 0.0, name, fields)


def test_a_twin_waits_for_no_failed_judge() -> None:
    state = searches.empty_state(START)
    state.start_wall_s = 5.0
    for number, key in enumerate(("first", "second")):
        fields = {"key": key, "node": state.start, "move": "m", "attempt": number, "links": []}
        state.take(event("proposed", fields | {"variant": plain_variant(START), "risk": "exact"}))

    async def run() -> None:
        async with AwaitedEvaluator(Building(slow)) as awaited:
            judging = StateJudge(awaited, TASK.problem, state)
            first, second = await judging.begin("first"), await judging.begin("second")
            assert first.verdict is not None and second.verdict is None
            assert first.build == second.build
            assert (await judging.insist("second")).verdict is not None

    asyncio.run(run())


@pytest.mark.parametrize("shared", [False, True])
def test_a_build_beside_the_verdict_counts(shared: bool) -> None:
    """Each build takes five seconds of a clock that only builds read."""
    state = searches.empty_state(START)
    state.start_wall_s = 5.0
    fields = {"key": "one", "node": state.start, "move": "m", "attempt": 0, "links": []}
    state.take(event("proposed", fields | {"variant": plain_variant(START), "risk": "exact"}))
    together = Scripted({"one": BuildMember(1, TASK.start)}) if shared else None

    async def run() -> None:
        stages = Stages(build_s=0.25)
        judge = Building(lambda *job: dataclasses.replace(slow(*job), stages=stages))
        clock = itertools.count(0.0, 5.0).__next__
        async with AwaitedEvaluator(judge) as awaited:
            found = await StateJudge(awaited, TASK.problem, state, together, clock=clock).begin(
                "one"
            )
            assert judge.built == 1 and found.build_s == 5.25

    asyncio.run(run())


class Scripted(BuildGroups):
    """Knows beforehand what is built together."""

    def __init__(self, members: dict[str, BuildMember]) -> None:
        self._members = members

    def find(self, key: str) -> BuildMember | None:
        return self._members.get(key)


def test_code_that_failed_later_is_no_twin_of_a_node(tmp_path: Path) -> None:
    """A race: correct at first, then wrong by the same machine code."""
    seen: set[str] = set()

    def flaky(problem: Problem, kernel: Kernel) -> Verdict:
        found = judged(problem, kernel)
        code = code_of(kernel).digest
        if found.correct and kernel != TASK.start and code in seen:
            return dataclasses.replace(verdict("wrong", message="a race"), build=found.build)
        seen.add(code)
        return found

    result = searches.run(tmp_path, ScriptedEvaluator(flaky), builds=12, workers=1, algo="random")
    wrong = [row for row in found(tmp_path) if row["status"] == "wrong" and not row["twin"]]
    assert wrong and result["failures"]["wrong"] == len(wrong)
    state = json.loads((tmp_path / "kernels/matmul/search_state.json").read_text())
    assert {row["key"] for row in wrong} <= set(state["failed"])
    again = searches.run(
        tmp_path, ScriptedEvaluator(flaky), builds=12, workers=1, algo="random", resume=True
    )
    assert again == result


def test_a_twins_own_verdict_is_kept(tmp_path: Path) -> None:
    searches.run(tmp_path, ScriptedEvaluator(judged), builds=12, workers=1, algo="random")
    twins = [row["key"] for row in found(tmp_path) if row["twin"]]
    folders = [tmp_path / "kernels/matmul/variants" / key for key in twins]
    assert folders and all((folder / "result.json").exists() for folder in folders)


def test_a_proposal_of_a_twin_is_in_the_history() -> None:
    state = searches.empty_state(START)
    for number, key in enumerate(("first", "second")):
        fields = {"key": key, "node": state.start, "move": "m", "attempt": number, "links": []}
        fields |= {"variant": plain_variant(START), "risk": "exact"}
        state.take(event("proposed", fields))
        fields = {"key": key, "build": "b", "status": "correct", "value": 0.5, "wall_s": 1.0}
        fields |= {"twin": "first" if number else None, **REST}
        state.take(event("judged", fields))
    fields = {"key": "second", "node": state.start, "move": "n", "attempt": 0}
    state.take(event("repeated", fields))
    last = state.history[-1]
    assert (last.key, last.state, last.move, last.value) == ("first", "second", "n", 0.5)
    assert not last.charged


def test_what_the_ruleset_refuses_is_not_judged(tmp_path: Path) -> None:
    text = TASK.start.source
    guard = "c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::Python);\n  auto out ="
    hidden = text.replace("auto out =", guard, 1)
    faster = text.replace('"-O2"', '"-O3"')
    offered = {"hidden": Kernel(hidden, "cpp"), "faster": Kernel(faster, "cpp")}
    seen: list[Kernel] = []

    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        seen.append(kernel)
        return verdict("correct", speedup=0.1 if kernel == TASK.start else 0.5)

    proposer = TextProposer(TASK.start, offered)
    result = searches.run(tmp_path, ScriptedEvaluator(judge), proposer=proposer, approximate=True)
    assert result["failures"] == {"rejected": 1} and result["evaluations"] == 2
    assert hidden != text and not [kernel for kernel in seen if "Guard" in kernel.source]
    assert result["speedup"] > 1.0
