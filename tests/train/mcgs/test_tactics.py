"""What moves came to, in a search and in earlier ones."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import UsageError, suite
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.tactics import (
    START,
    Edges,
    MoveExperience,
    TacticsKey,
    add_tactics,
    read_tactics,
    tactics_path,
)
from support import searches

KEY = TacticsKey("product", "cpu")
PRIORS = (("a", 0.5), ("b", 0.3), ("c", 0.2))
MOVES = st.sampled_from("abc")
RESULTS = st.lists(st.tuples(MOVES | st.just(START), MOVES, st.booleans()), max_size=40)


def experience(results: list[tuple[str, str, bool]]) -> MoveExperience:
    made = MoveExperience()
    for after, move, gained in results:
        made.add(after, move, 0.5 if gained else 0.0)
    return made


@given(RESULTS, MOVES)
def test_priors_stay_above_zero_and_add_up(
    results: list[tuple[str, str, bool]], after: str
) -> None:
    found = experience(results).weighed(after, PRIORS)
    assert [move for move, _ in found] == [move for move, _ in PRIORS]
    assert sum(share for _, share in found) == pytest.approx(1.0)
    # 0.1 to 1.1 times the rules', before they add up to 1 again.
    for (_, share), (_, before) in zip(found, PRIORS, strict=True):
        assert share >= before * 0.1 / 1.1 - 1e-12


def test_what_gains_is_tried_sooner() -> None:
    found = dict(experience([("a", "c", True)] * 4 + [("a", "b", False)] * 4).weighed("a", PRIORS))
    assert found["c"] > 0.2 and found["b"] < 0.3
    elsewhere = dict(experience([("a", "c", True)] * 4).weighed("b", PRIORS))
    after_a = dict(experience([("a", "c", True)] * 4).weighed("a", PRIORS))
    assert 0.2 < elsewhere["c"] < after_a["c"]
    assert MoveExperience().weighed("a", PRIORS) == PRIORS


def test_gain_that_is_taken_back_counts_as_a_try_without_one() -> None:
    found, plain = MoveExperience(), MoveExperience()
    found.add("start", "flags", 0.7, "memory")
    found.take_back("start", "flags", 0.7, "memory")
    plain.add("start", "flags", 0.0, "memory")
    priors = (("flags", 0.5), ("unroll", 0.5))
    assert found.weighed("start", priors, "memory") == plain.weighed("start", priors, "memory")
    assert found.fresh == plain.fresh


def test_gain_at_a_bottleneck_counts_more_there() -> None:
    made = MoveExperience()
    for _ in range(4):
        made.add(START, "c", 0.5, "gmem")
        made.add(START, "c", 0.0, "compute")
    shares = {
        limit: dict(made.weighed("a", PRIORS, limit))["c"]
        for limit in ("gmem", "compute", "sfu", "")
    }
    assert shares["gmem"] > shares["sfu"] == shares[""] > shares["compute"]
    assert made.predicted_gain("a", "c", "gmem") > made.predicted_gain("a", "c", "compute")


@pytest.mark.parametrize(("index", "kept"), [(0, False), (1, True)])
def test_search_of_a_held_out_problem_adds_no_tactics(
    index: int, kept: bool, tmp_path: Path
) -> None:
    problems = suite("Synthetic").problems(1, split=("heldout", "rl")[index])
    task = dataclasses.replace(searches.TASK, problem=problems[0])
    assert task.is_held_out is not kept
    file = tmp_path / "shared.json"
    judge = searches.evaluator()
    config = SearchConfig(Budget(4), tactics=file)
    search(task, judge, tmp_path / "out", config)
    assert file.exists() is kept


def test_late_results_count_more() -> None:
    late = dict(experience([("a", "b", False)] * 9 + [("a", "b", True)] * 9).weighed("a", PRIORS))
    early = dict(experience([("a", "b", True)] * 9 + [("a", "b", False)] * 9).weighed("a", PRIORS))
    assert late["b"] > early["b"]


@settings(max_examples=15)
@given(RESULTS)
def test_what_is_written_is_read(results: list[tuple[str, str, bool]]) -> None:
    made = experience(results)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "deep" / "file.json"
        add_tactics(path, KEY, made.fresh)
        again = MoveExperience()
        again.begin(read_tactics(path, KEY))
    for after in (START, "a"):
        for mine, read in zip(
            made.weighed(after, PRIORS), again.weighed(after, PRIORS), strict=True
        ):
            assert mine == pytest.approx(read, abs=1e-4)


def test_families_and_devices_are_never_merged(tmp_path: Path) -> None:
    path = tactics_path(tmp_path)
    fresh: Edges = {("gmem", START, "a"): [10.0, 5.0, 2.0]}
    other = TacticsKey("product", "cuda")
    add_tactics(path, KEY, fresh)
    add_tactics(path, other, {("", START, "b"): [1.0, 0.0, 0.0]})
    before = read_tactics(path, other)
    add_tactics(path, KEY, fresh)
    counts = {"attempts": 18.0, "successes": 9.0, "gain": 3.6}
    assert read_tactics(path, KEY) == {"gmem": {START: {"a": counts}}}
    assert read_tactics(path, other) == before and START in before[""]
    assert read_tactics(path, TacticsKey("reduction", "cpu")) == {} == read_tactics(path)
    whole = json.loads(path.read_text())
    assert {(e["family"], e["device_kind"], e["searches"]) for e in whole["entries"].values()} == {
        ("product", "cpu", 2),
        ("product", "cuda", 1),
    }


@given(RESULTS, MOVES)
def test_move_without_a_gain_is_expected_to_gain_less_each_time(
    results: list[tuple[str, str, bool]], move: str
) -> None:
    made = experience(results)
    predicted = [made.predicted_gain(START, [move])]
    for _ in range(40):
        made.add(START, move, 0.0)
        predicted.append(made.predicted_gain(START, [move]))
    assert all(later < before for before, later in itertools.pairwise(predicted))
    assert predicted[-1] < 0.02
    made.add(START, move, 2.0)
    assert made.predicted_gain(START, [move]) > 0.02
    assert MoveExperience().predicted_gain(START, [move]) == pytest.approx(math.expm1(0.1))
    best = max(made.predicted_gain(START, [each]) for each in "abc")
    assert made.predicted_gain(START, "abc") == best


def test_searches_share_a_file_and_leave_out_what_never_gained(tmp_path: Path) -> None:
    """Searches with folders of their own, as two commands have."""
    shared = tmp_path / "shared.json"
    first = searches.run(tmp_path / "one", searches.evaluator(), 40, algo="mcgs", tactics=shared)
    assert shared.exists() and not tactics_path(tmp_path / "one").exists()
    (entry,) = json.loads(shared.read_text())["entries"].values()
    assert entry["family"] == "product"
    key = TacticsKey(entry["family"], entry["device_kind"])
    add_tactics(shared, key, {("", START, "register_block"): [9e4, 0.0, 0.0]})
    judge = searches.evaluator()
    given = {"algo": "mcgs", "tactics": shared}
    result = searches.run(tmp_path / "two", judge, 40, **given)
    assert result["pruned"] > first["pruned"]
    tried = proposals(tmp_path / "two")
    start = (tmp_path / "two/kernels/matmul/events.jsonl").read_text()
    weak = [p for p in tried if p["move"] == "register_block" and len(p["variant"]["applied"]) == 1]
    assert not weak and '"pruned"' in start
    free = Budget(40, min_pred_gain=0.0)
    whole = searches.run(tmp_path / "three", searches.evaluator(), budget=free, **given)
    assert whole["pruned"] == 0
    again = searches.run(tmp_path / "two", judge, 41, resume=True, **given)
    assert again["pruned"] >= result["pruned"], "a search that goes on knows what it left out"


def whole_file(attempts: float, gain: float) -> str:
    """Return the text of a shared file with one edge."""
    counts = {"attempts": attempts, "successes": 0, "gain": gain}
    return json.dumps(
        {"version": 3, "entries": {str(KEY): {"edges": {"": {START: {"a": counts}}}}}}
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"version": 9, "entries": {}}', '{"version": 3, "entries": {"x": 3}}'),
        *(whole_file(1, 1e6), whole_file(-8, 0.0), whole_file(math.nan, 0.0)),
    ],
)
def test_a_damaged_file_is_refused_before_a_search(text: str, tmp_path: Path) -> None:
    tactics_path(tmp_path).write_text(text)
    judge = searches.evaluator()
    with pytest.raises(UsageError, match="global_tactic_graph"):
        searches.run(tmp_path, judge, 2)
    assert not judge.judged and not (tmp_path / "kernels").exists()
    with pytest.raises(UsageError, match="global_tactic_graph"):
        add_tactics(tactics_path(tmp_path), KEY, {("", START, "a"): [1.0, 1.0, 0.1]})
    assert tactics_path(tmp_path).read_text() == text


def test_another_version_is_told_before_its_form(tmp_path: Path) -> None:
    tactics_path(tmp_path).write_text('{"version": 9, "contexts": [1]}')
    with pytest.raises(UsageError, match="is of version 9, and this kernelgym reads version 3"):
        searches.run(tmp_path, searches.evaluator(), 2)


def test_file_of_an_earlier_version_is_begun_anew(tmp_path: Path) -> None:
    tactics_path(tmp_path).write_text('{"version": 2, "entries": {"x": 3}}')
    searches.run(tmp_path, searches.evaluator(), 2)
    assert json.loads(tactics_path(tmp_path).read_text())["version"] == 3


def test_a_finished_search_reads_no_tactics(tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator(), 2)
    tactics_path(tmp_path).write_text("damaged")
    assert searches.run(tmp_path, searches.evaluator(), 2, resume=True) == result
    judge = searches.evaluator()
    with pytest.raises(UsageError, match="global_tactic_graph"):
        searches.run(tmp_path, judge, 4, resume=True)
    assert not judge.judged


def proposals(outdir: Path) -> list[dict[str, Any]]:
    log = read_events(outdir / "kernels" / "matmul" / "events.jsonl")
    return [dict(event.fields) for event in log if event.name == "proposed"]


def counted(outdir: Path) -> float:
    whole = json.loads(tactics_path(outdir).read_text())
    (entry,) = whole["entries"].values()
    states = [moves for limit in entry["edges"].values() for moves in limit.values()]
    return sum(counts["attempts"] for moves in states for counts in moves.values())


def test_a_search_adds_what_it_found_once(tmp_path: Path) -> None:
    judge = searches.evaluator()
    searches.run(tmp_path, judge, 4)
    first = counted(tmp_path)
    assert 3.0 < first <= 4.0
    searches.run(tmp_path, judge, 4, resume=True)  # has nothing left to do
    assert counted(tmp_path) == first
    searches.run(tmp_path, judge, 6, resume=True)
    assert 0.8 * first + 1.5 < counted(tmp_path) <= 0.8 * first + 2.0 + 1e-6
    sources = [each["prior_source"] for each in proposals(tmp_path)]
    assert sources[0] == "static" and "static+run" in sources


def test_a_later_search_begins_with_the_file(tmp_path: Path) -> None:
    searches.run(tmp_path, searches.evaluator(), 6)
    shutil.rmtree(tmp_path / "kernels")
    judge: ScriptedEvaluator = searches.evaluator()
    searches.run(tmp_path, judge, 4, budget=Budget(4))
    (began, *_) = read_events(tmp_path / "kernels" / "matmul" / "events.jsonl")
    assert began.fields["tactics"][""][START]
    assert any(each["prior_source"].endswith("file") for each in proposals(tmp_path))


def test_state_is_watched_after_each_event_and_after_a_resumption(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(state: SearchState) -> None:
        seen.append(state.evaluations)

    searches.run(tmp_path, searches.evaluator(), 3, watch=watch)
    log = read_events(tmp_path / "kernels" / "matmul" / "events.jsonl")
    assert len(seen) == len(log) and seen[0] == 0 and seen[-1] == 3
    searches.run(tmp_path, searches.evaluator(), 4, resume=True, watch=watch)
    more = read_events(tmp_path / "kernels" / "matmul" / "events.jsonl")
    assert seen[len(log)] == 3 and len(seen) == len(more) + 1
