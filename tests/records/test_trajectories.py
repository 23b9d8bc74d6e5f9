"""Episodes as lines of JSON: what is written comes back, and cut files are mended."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line, read_lines, write_lines
from kernelgym.records.trajectories import (
    EpisodeRecord,
    append_record,
    read_records,
    with_source,
    write_records,
)
from kernelgym.rewards import REWARDS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Kernel, Problem, Trajectory, Verdict
from support.strategies import texts, verdicts

GOOD = reply(SAMPLE_KERNELS["triton"])
JUDGED = verdict("wrong", trials_passed=2, message="off by one")


def played(
    *steps: tuple[str, Verdict], reward: str = "stage2", problem: Problem = SAMPLE_PROBLEM
) -> Trajectory:
    """Return the episode in which these texts got these verdicts."""
    game = Episode(
        problem, EpisodeConfig(language="triton", reward=reward, max_turns=8, stop_when="never")
    )
    for text, found in steps:
        if game.over:
            break
        read = game.read(text)
        game.record(text, found if isinstance(read, Kernel) else read)
    return game.trajectory


def record(trajectory: Trajectory | None = None, **fields: Any) -> EpisodeRecord:
    if trajectory is None:
        trajectory = played((GOOD, JUDGED), ("no kernel", JUDGED))
    known = {"language": "triton", "device": "cpu", "ruleset": "strict@0", "reward": "stage2"}
    return EpisodeRecord(trajectory, **(known | fields))


def is_json_text(text: str) -> bool:
    """False for a lone high surrogate before a lone low one: JSON takes them for one character."""
    return text == json.loads(json.dumps(text))


@given(
    st.lists(st.tuples(texts, verdicts()), max_size=4),
    st.sampled_from(sorted(REWARDS)),
    st.booleans(),
)
@settings(deadline=None)
def test_what_is_written_comes_back(steps, reward, source) -> None:
    assume(all(is_json_text(text) for text, _ in steps))
    assume(all(is_json_text(f.message + f.log) for _, f in steps))
    trajectory = played(*steps, reward=reward)
    whole = record(
        trajectory, reward=reward, key="a/1", start="x = 1", observer={"examples": 0},
        observations=tuple(f"{i}" for i, _ in enumerate(trajectory.turns)),
    )  # fmt: skip
    line = json.dumps(whole.to_dict(source=source), allow_nan=False)
    back = EpisodeRecord.from_dict(json.loads(line))
    assert back.has_source == source
    assert with_source(back, SAMPLE_PROBLEM) == whole
    assert back.trajectory.scores == trajectory.scores


def test_a_file_of_several_comes_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    all_of_them = [record(key=str(i), observer={"recent": i}) for i in range(3)]
    append_record(path, all_of_them[0])
    append_record(path, all_of_them[1])
    append_record(path, all_of_them[2])
    assert list(read_records(path)) == all_of_them
    assert write_records(path, all_of_them[1:]) == 2
    assert list(read_records(path)) == all_of_them[1:]
    assert [item.name for item in tmp_path.iterdir()] == ["played.jsonl"]


def test_nothing_is_replaced_by_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    write_records(path, [record()])
    before = path.read_bytes()

    def breaks():
        yield record()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_records(path, breaks())
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["played.jsonl"]


@given(st.integers(min_value=1, max_value=4000))
@settings(deadline=None, max_examples=40)
def test_a_cut_last_line_is_left_out_and_then_removed(tmp_path_factory, keep) -> None:
    path = tmp_path_factory.mktemp("cut") / "played.jsonl"
    write_records(path, [record(key="first"), record(key="second")])
    lines = path.read_bytes().splitlines(keepends=True)
    part = lines[1][: min(keep, len(lines[1]) - 2)]
    path.write_bytes(lines[0] + part)
    cut: list[int] = []
    assert [found.key for found in read_records(path, on_cut=cut.append)] == ["first"]
    assert cut == [2]
    append_record(path, record(key="third"))
    assert [found.key for found in read_records(path, on_cut=cut.append)] == ["first", "third"]
    assert cut == [2]


def test_a_last_line_that_lost_only_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    path.write_bytes(json.dumps(record(key="first").to_dict()).encode())
    append_record(path, record(key="second"))
    assert [found.key for found in read_records(path)] == ["first", "second"]


def test_a_cut_longer_than_what_is_read_at_once_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": "' + b"x" * 200_000)
    append_line(path, {"c": 3})
    assert [row for _, row in read_lines(path)] == [{"a": 1}, {"c": 3}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"schema": 1, "prob\n', r"line 2: not JSON .*; repair or remove the line"),
        (b"\xff\xfe\n", "line 2: not JSON"),
        (b"[1]\n", "line 2: not a JSON object"),
        (b"{}\n", "line 2: an episode of schema None"),
        (b'{"schema": 2}\n', "line 2: an episode of schema 2.*reads schema 1"),
        (b'{"schema": 1}\n', "line 2: the episode lacks the field 'problem'"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line, said) -> None:
    path = tmp_path / "played.jsonl"
    good = json.dumps(record().to_dict()).encode() + b"\n"
    path.write_bytes(good + line + good)
    with pytest.raises(UsageError, match=said):
        list(read_records(path))
    with pytest.raises(UsageError, match="cannot read"):
        list(read_records(tmp_path / "none.jsonl"))


def change(data: dict[str, Any], *keys: str | int, to: object) -> dict[str, Any]:
    data = json.loads(json.dumps(data))
    place: Any = data
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return data


@pytest.mark.parametrize(
    ("keys", "to"),
    [
        (("problem", "source"), "x = 1"),
        (("turns", 0, "kernel", "source"), "x = 1"),
        (("turns", 0, "verdict", "status"), "great"),
        (("turns", 0, "verdict", "trials_passed"), 99),
        (("turns", 0, "index"), 1),
        (("turns", 0, "action"), 5),
        (("turns", 0, "feedback"), None),
        (("ended",), "later"),
        (("reward",), None),
        (("max_turns",), "4"),
        (("turns",), 3),
    ],
)
def test_a_changed_record_is_refused(keys, to) -> None:
    data = record().to_dict()
    assert EpisodeRecord.from_dict(data) == record()
    with pytest.raises(UsageError, match="does not fit"):
        EpisodeRecord.from_dict(change(data, *keys, to=to))


def test_fields_of_later_writers_are_left_aside() -> None:
    data = change(record().to_dict(), "mood", to="good")
    data = change(data, "turns", 0, "feedback", "colour", to="red")
    assert EpisodeRecord.from_dict(data) == record()


def test_a_source_is_put_back_only_where_it_belongs() -> None:
    whole = record()
    bare = EpisodeRecord.from_dict(whole.to_dict(source=False))
    assert SAMPLE_PROBLEM.source not in json.dumps(bare.to_dict())
    assert bare.problem_digest == SAMPLE_PROBLEM.digest
    other = dataclasses.replace(SAMPLE_PROBLEM, source=SAMPLE_PROBLEM.source + "\n# changed\n")
    with pytest.raises(UsageError, match="find the version it was played on"):
        with_source(bare, other)


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        append_line(tmp_path / "rows.jsonl", {"a": float("nan")})
    assert not (tmp_path / "rows.jsonl").exists()
    with pytest.raises(UsageError, match="cannot write"):
        append_line(tmp_path / "no" / "rows.jsonl", {"a": 1})
    with pytest.raises(UsageError, match="cannot write"):
        write_lines(tmp_path / "no" / "rows.jsonl", [])


def _append_many(path: str, writer: int) -> None:
    for number in range(30):
        append_line(path, {"writer": writer, "number": number, "text": "x" * 70_000})


def test_several_processes_write_to_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.jsonl")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, i)) for i in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    rows = [row for _, row in read_lines(path)]
    assert len(rows) == 90
    for writer in range(3):
        assert [row["number"] for row in rows if row["writer"] == writer] == list(range(30))
