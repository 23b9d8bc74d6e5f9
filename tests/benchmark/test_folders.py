"""Runs read from where they lie: what is there, what is missing, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym.benchmark import report
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import write_lines
from kernelgym.records.trajectories import write_records
from support.benchmark_runs import RIGHT, WRONG, eval_run, fast, made, problem, record, spell
from support.html_pages import parsed


def answer(name: str, sample: int, turn: int = 0, **fields: object) -> dict[str, object]:
    usage = {"prompt": 100, "cached": 40, "completion": 20, "reasoning": 5}
    row = {"problem": problem(name).id, "sample": sample, "turn": turn, "text": "..."}
    return row | {"usage": usage, "usd": 0.25, "latency_s": 2.0, "tries": 2} | fields


def failed(name: str, sample: int, kind: str = "provider", turn: int = 0) -> dict[str, object]:
    row = {"problem": problem(name).id, "sample": sample, "turn": turn}
    return row | {"kind": kind, "message": "429 Too Many Requests", "tries": 5}


def test_an_eval_run_is_read_with_its_plan(tmp_path: Path) -> None:
    answers = [answer("A", 0, reasoning="think", finish_reason="length"), answer("A", 1)]
    run = read_run(eval_run(tmp_path / "one", {"A": "r wr", "B": "w x"}, answers=answers))
    assert (run.name, run.kind, run.samples) == ("one", "eval", 2)
    assert [played.key for played in run.episodes] == [
        ("Test/L1/A", 0),
        ("Test/L1/A", 1),
        ("Test/L1/B", 0),
        ("Test/L1/B", 1),
    ]
    first = run.episodes[0].answers[0]
    assert (first.usage.prompt, first.usage.reasoning, first.usd) == (100, 5, 0.25)
    assert (first.reasoning, first.finish_reason, first.tries) == ("think", "length", 2)
    assert not run.missing and run.planned == ("Test/L1/A", "Test/L1/B")


def test_missing_episodes_are_told_with_their_reason(tmp_path: Path) -> None:
    folder = eval_run(
        tmp_path / "one", {"A": "r w-", "B": "r"}, samples=2, failures=[failed("A", 1, turn=1)]
    )
    (folder / "plan.json").write_text(
        json.dumps(
            json.loads((folder / "plan.json").read_text())
            | {"problems": [{"id": problem(n).id, "digest": problem(n).digest} for n in "ABC"]}
        )
    )
    assert read_run(folder).missing == {
        ("Test/L1/A", 1): "provider",
        ("Test/L1/B", 1): "not played",
        ("Test/L1/C", 0): "not played",
        ("Test/L1/C", 1): "not played",
    }


def test_a_full_context_is_an_end(tmp_path: Path) -> None:
    plan = {"context": "transcript"}
    # An answer that failed once and came at the next try cut nothing either.
    rows = [failed("A", 1, turn=1)]
    run = read_run(eval_run(tmp_path / "one", {"A": "ww- rw-"}, failures=rows, plan=plan))
    assert not run.missing
    assert [outcome.best is not None for outcome in run.outcomes] == [True, True]
    unjudged = read_run(eval_run(tmp_path / "two", {"A": "wx-"}, plan=plan))
    other = read_run(eval_run(tmp_path / "three", {"A": "ww-"}))
    assert list(unjudged.missing.values()) == list(other.missing.values()) == ["cut"]


def test_episodes_of_a_file_are_numbered_by_problem(tmp_path: Path) -> None:
    played = [*spell("r w", "A"), *spell("w", "B")]
    write_records(tmp_path / "e.jsonl", [record(each, key="") for each in played])
    run = read_run(tmp_path / "e.jsonl")
    assert run.kind == "episodes" and run.samples is None and not run.missing
    assert [played.sample for played in run.episodes] == [0, 1, 0]


def test_a_cut_last_line_is_left_out_and_noted(tmp_path: Path) -> None:
    folder = eval_run(tmp_path / "one", {"A": "r w"})
    path = folder / "trajectories.jsonl"
    path.write_bytes(path.read_bytes()[:-200])
    run = read_run(folder)
    assert len(run.episodes) == 1 and "line 2 of trajectories.jsonl" in run.notes[0]
    assert run.missing == {("Test/L1/A", 1): "not played"}


def test_a_training_run_has_its_curves(tmp_path: Path) -> None:
    write_records(
        tmp_path / "trajectories.jsonl", [record(each, key="0/0/0") for each in spell("r")]
    )
    about = {"backend": "trl", "machine": {"cores": 2}, "versions": {"torch": "2"}, "seed": 3}
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    rows = [{"step": 0, "turn_1/correct_rate": 0.25}, {"step": 1}, {"turn_1/correct_rate": 0.5}]
    write_lines(tmp_path / "metrics.jsonl", rows)
    run = read_run(tmp_path)
    assert run.kind == "training" and run.machine == {"cores": 2, "torch": "2"}
    assert run.curves == {"turn_1/correct_rate": (0.25, 0.25, 0.5)}


def test_second_measurement_is_of_the_winning_kernel(tmp_path: Path) -> None:
    played = made([WRONG, fast(5.0)])
    folder = eval_run(tmp_path / "one", {}, episodes=[record(played)])
    kernel = played.turns[1].reply.kernel
    assert kernel is not None
    row = {"problem": played.problem.id, "sample": 0, "turn": 1}
    for digest, best in ((kernel.digest, fast(3.0)), ("0" * 16, fast(5.0))):
        told = row | {"kernel_digest": digest, "verdict": fast(3.0).to_dict()}
        write_lines(folder / "winners.jsonl", [told])
        assert read_run(folder).episodes[0].outcome.best == best


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("plan.json", "{", "cannot read .* restore the file"),
        ("plan.json", "[]", "holds no plan; restore"),
        ("plan.json", "[" * 5000, "cannot read"),
        ("plan.json", '{"version": 2, "kind": "eval"}', "version 2"),
        ("plan.json", '{"version": 1, "kind": "eval", "problems": [{}]}', "holds no valid plan"),
        ("generations.jsonl", '{"problem": "A"}\n', "line 1: not an answer"),
        ("failures.jsonl", '{"problem": "A", "sample": 0, "turn": 0}\n', "not a failure"),
        ("winners.jsonl", '{"problem": "A", "sample": 0, "turn": 0}\n', "not a verdict"),
        ("verdicts.jsonl", "garbage\n", "line 1: not JSON .* with --partial"),
        ("verdicts.jsonl", '{"problem": "A", "sample": 0, "turn": 0}\n', "line 1: not a verdict"),
        ("trajectories.jsonl", "{}\n{}\n", "line 1"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    folder = eval_run(tmp_path / "one", {"A": "r"})
    (folder / name).write_text(text)
    with pytest.raises(UsageError, match=says) as found:
        read_run(folder)
    assert name in str(found.value)


def test_read_run_partial_leaves_damage_out_and_notes_it(tmp_path: Path) -> None:
    folder = eval_run(tmp_path / "one", {"A": "r w"})
    for name in ("trajectories.jsonl", "verdicts.jsonl", "generations.jsonl"):
        whole = (folder / name).read_text() if (folder / name).exists() else ""
        (folder / name).write_text(f"garbage\n{whole}")
    run = read_run(folder, partial=True)
    assert len(run.episodes) == 2
    assert [note.partition(":")[0] for note in run.notes] == ["left out"] * 3
    assert all("line 1: not JSON" in note for note in run.notes)


def test_read_run_without_verdicts_is_refused_unless_partial(tmp_path: Path) -> None:
    folder = eval_run(tmp_path / "one", {"A": "r"})
    (folder / "verdicts.jsonl").unlink()
    with pytest.raises(UsageError, match=r"verdicts.jsonl is missing.* with --partial"):
        read_run(folder)
    assert "verdicts.jsonl is missing" in read_run(folder, partial=True).notes[0]


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no episode"):
        read_run(eval_run(tmp_path / "one", {}))
    (tmp_path / "no.jsonl").write_text("")
    with pytest.raises(UsageError, match="holds no episode"):
        read_run(tmp_path / "no.jsonl")


def test_a_run_without_an_answer_still_tells_why(tmp_path: Path) -> None:
    row = [failed("A", 0)]
    about = {"problems": [{"id": problem("A").id, "digest": problem("A").digest}]}
    run = read_run(eval_run(tmp_path / "one", {}, failures=row, plan=about))
    assert run.missing == {("Test/L1/A", 0): "provider"} and run.outcomes == []
    found = report(run)
    assert found.to_dict()["runs"][0]["counts"]["missing"] == 1
    assert "429 Too Many Requests" in parsed(found.html()).text


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing at"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is not a run"):
        read_run(tmp_path)


def test_an_episode_that_was_played_on_counts_once(tmp_path: Path) -> None:
    twice = [record(*spell("w-")), record(made([WRONG, RIGHT]))]
    run = read_run(eval_run(tmp_path / "one", {}, episodes=twice))
    assert [len(played.turns) for played in run.episodes] == [2] and not run.missing


def test_an_episode_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "e.jsonl", [record(made([RIGHT])), record(made([WRONG]))])
    with pytest.raises(UsageError, match=r"sample 0 of Test/L1/A is there more than once"):
        read_run(tmp_path / "e.jsonl")
