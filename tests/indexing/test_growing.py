"""A run's own archive: made of its episodes, bounded, and shown."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UsageError
from kernelgym.indexing.growing import RecordedArchives, RunArchive, step_of
from kernelgym.indexing.played import BestKernels, played_entries
from kernelgym.prompts.observer import Observer
from kernelgym.records.trajectories import EpisodeRecord, append_record
from kernelgym.retrieval.archive import archive_index, forget_archives, keep_archive
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.exclusion import form_of
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.prompt_part import Retrieval, load_index, load_indexes
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.testing import ScriptedEvaluator, reply, verdict
from kernelgym.types import Problem, Trajectory

PROBLEMS, OTHERS = SyntheticSuite().problems(2, split="rl")[:6], SyntheticSuite().problems(1)
HELD_OUT = SyntheticSuite().problems(2, split="heldout")[:4]


def record(problem: Problem, step: int, *said: str, number: int = 0, speed: float = 1.0):
    game = Episode(problem, EpisodeConfig(language="triton", max_turns=9, stop_when="never"))
    for turn, status in enumerate(said):
        of_suite = get_problem(problem.id.removeprefix("Mine/"))
        text = reply(solve(of_suite, "triton", 1000 * step + 10 * number + turn))
        game.read(text)
        judged = verdict(status, speedup=speed if status == "correct" else None)
        if judged.timing is not None:
            timing = dataclasses.replace(judged.timing, speedup_high=1.05 * speed)
            judged = dataclasses.replace(judged, timing=timing)
        game.record(text, judged)
    played = Trajectory(problem, game.turns, "cut", 9)
    return EpisodeRecord(
        *(played, "triton", "cpu", "strict", "sparse"),
        writer="kernelgym-train",
        key=f"{step}/0/{number}",
    )


STEPS = [
    [record(problem, step, "wrong", "correct", number=i) for i, problem in enumerate(some)]
    for step, some in enumerate((PROBLEMS[:2], PROBLEMS[2:4], PROBLEMS[:4]))
]


@pytest.fixture(scope="module")
def part(tmp_path_factory) -> Retrieval:
    """Shows a small index in a folder."""
    folder = tmp_path_factory.mktemp("index") / "small"
    records = [record(problem, 9, "wrong", "correct") for problem in OTHERS[:12]]
    Index.from_entries(played_entries(records)).save(folder)
    return Retrieval(str(folder), k=2, when="always")


def grown(steps=STEPS, most: int = 4000) -> RunArchive:
    archive = RunArchive(most)
    for each in steps:
        archive.move_on(each)
    return archive


def test_archive_of_a_step_is_that_of_its_file(tmp_path) -> None:
    path = tmp_path / "trajectories.jsonl"
    unbroken = RunArchive()
    states = [unbroken.state()]
    for step in STEPS:
        for each in step:
            append_record(path, each)
        unbroken.move_on(step)
        states.append(unbroken.state())
    assert len({state["digest"] for state in states}) == len(STEPS) + 1
    recorded = RecordedArchives(path)
    for step, state in enumerate(states):
        again = RunArchive()
        again.load(state, path)
        assert again.state() == state and again.step == step
        assert recorded.at(step) == state["digest"]
    other = RunArchive()
    with pytest.raises(UsageError, match="episodes were taken out of the file"):
        other.load(states[2] | {"step": 1}, path)


def test_archive_without_a_file_is_empty(tmp_path) -> None:
    archive = RunArchive()
    archive.load(archive.state(), tmp_path / "none.jsonl")
    assert len(archive) == 0 and archive.entries == ()


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.5, 4)), max_size=12), st.integers(1, 8))
def test_archive_keeps_the_best_few_and_its_bound(played, most) -> None:
    records = [
        record(PROBLEMS[which], place, "correct", speed=speed)
        for place, (which, speed) in enumerate(played)
    ]
    entries = grown([[each] for each in records], most).entries
    assert len(entries) <= most and len({entry.id for entry in entries}) == len(entries)
    for entry in entries:
        same = [e for e in played_entries(records, 99) if e.form == entry.form]
        better = [e for e in same if e.speed[1] > entry.speed[1]]
        assert len(better) < 3
    if played:  # what was found last is kept
        assert form_of(PROBLEMS[played[-1][0]]) in {entry.form for entry in entries}


def test_gathered_gives_what_all_episodes_together_give() -> None:
    records = [each for step in STEPS for each in step]
    gathered = BestKernels(2)
    for each in records:
        gathered.add(each)
    assert gathered.entries() == played_entries(records, 2)


def test_archive_is_searched_beside_the_index(part) -> None:
    archive = grown()
    observer = archive.observer(Observer("triton", "cpu", max_turns=2, parts=(part,)))
    shows = observer.parts[0]
    assert (shows.archive_step, len(shows.archive)) == (3, 16)
    asked = PROBLEMS[4]
    index, own = load_indexes(shows, "triton", "cpu")
    assert {entry.problem_id for entry in own.entries} == {p.id for p in PROBLEMS[:4]}
    # All that both hold, asked at once, gives the same order.
    entries = (*index.entries, *own.entries)
    order = sorted(range(len(entries)), key=lambda place: entries[place].id)
    both = dataclasses.replace(
        index,
        entries=tuple(entries[place] for place in order),
        vectors=np.concatenate([index.vectors, own.vectors])[order],
        keys=tuple((*index.keys, *own.keys)[place] for place in order),
        engine=None,
    )
    nearest = dataclasses.replace(shows, k=9, tokens=99999, least=0.0)
    found = both.search(asked, 9).neighbours
    shown = dataclasses.replace(observer, parts=(nearest,)).retrieved(asked)[0]
    assert shown == tuple(neighbour.entry.id for neighbour in found)


def test_archive_shows_nothing_of_the_problem_asked(part) -> None:
    archive = grown([[record(PROBLEMS[0], 0, "correct", number=n) for n in range(3)]])
    observer = archive.observer(Observer("triton", "cpu", parts=(part,)))
    own = {entry.id for entry in archive.entries}
    assert own and not own & set(observer.retrieved(PROBLEMS[0])[0])
    wanted = dataclasses.replace(observer.parts[0], same_problem=True)
    shown = dataclasses.replace(observer, parts=(wanted,)).retrieved(PROBLEMS[0])[0]
    assert own & set(shown)


def test_archive_shows_nothing_of_a_held_out_problem(part) -> None:
    # As a twin of the run's own suite would: a problem whose answer is that of a held-out one.
    twins = [dataclasses.replace(p, id=f"Mine/{p.id}", suite="Mine", name="") for p in HELD_OUT]
    steps = [[record(p, 0, "correct") for p in (*twins, PROBLEMS[0])]]
    held = dataclasses.replace(part, hold_out=("Synthetic:heldout:L2",))
    observer = grown(steps).observer(Observer("triton", "cpu", parts=(held,)))
    index, own = load_indexes(observer.parts[0], "triton", "cpu")
    assert index is load_index(held, "triton", "cpu")
    assert [entry.problem_id for entry in own.entries] == [PROBLEMS[0].id]


def test_archive_is_not_shown_where_entries_were_tested(part) -> None:
    problem = PROBLEMS[4]
    base = load_index(part, "triton", "cpu")
    tested = dataclasses.replace(base, passed={problem.digest: (base.entries[0].id,)}, engine=None)
    own = archive_index(keep_archive(grown().entries), 3, "triton", tested)
    assert not own.search(problem, 9).neighbours
    assert own.search(PROBLEMS[5], 9).neighbours


def test_archive_that_is_not_there_is_refused(part) -> None:
    archive = grown()
    shows = archive.observer(Observer("triton", "cpu", parts=(part,))).parts[0]
    forget_archives()
    with pytest.raises(UsageError, match=f"archive of step 3 with digest {shows.archive}"):
        KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator(), max_turns=2, retrieval=shows)
    with pytest.raises(UsageError, match="a training run sets both"):
        dataclasses.replace(part, archive_step=3)


def test_few_archives_are_kept_at_a_time(part) -> None:
    entry = IndexEntry(PROBLEMS[0].source, "class ModelNew: ...", "triton")
    first = keep_archive([entry])
    for number in range(20):
        keep_archive([dataclasses.replace(entry, kernel=f"class ModelNew: x = {number}")])
    shows = dataclasses.replace(part, archive_step=1, archive=first)
    with pytest.raises(UsageError, match="is not there"):
        load_indexes(shows, "triton", "cpu")


@pytest.mark.parametrize(("key", "step"), [("3/0/1", 3), ("", -1), ("x/1", -1), ("7", -1)])
def test_step_is_read_from_a_record_s_key(key, step) -> None:
    assert step_of(dataclasses.replace(STEPS[0][0], key=key)) == step


def test_problem_without_source_gives_nothing() -> None:
    about = get_problem("Synthetic/L2/4")
    bare = dataclasses.replace(record(about, 0, "correct"), problem_digest="0" * 16)
    assert grown([[bare]]).entries == ()
