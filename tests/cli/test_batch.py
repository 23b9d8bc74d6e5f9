"""`kernelgym check --batch`: order, resumption, and messages before anything is judged."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.cli import judging
from kernelgym.cli.batch import read_jobs, verdict_row
from kernelgym.cli.check import CheckCommand
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Verdict

PROMISED = (
    "id status compiled correct speedup speedup_low timed findings message isolation ruleset wall_s"
).split()


def write_jobs(folder: Path, *kernels: str, name: str = "jobs.jsonl", **more: object) -> Path:
    path = folder / name
    rows = [{"id": f"job-{n}", "problem": "problem.py", "kernel": k} for n, k in enumerate(kernels)]
    path.write_text("".join(json.dumps(row | more) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Backwards(ScriptedEvaluator):
    """Judges the last job first."""

    def evaluate_iter(self, jobs) -> Iterator[tuple[int, Verdict]]:  # type: ignore[no-untyped-def]
        for index, job in reversed(list(enumerate(jobs))):
            yield index, self.evaluate(job.problem, job.kernel)


def test_one_row_per_job_in_order(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "wrong.py", "refused.py", "lost.py", "fast.py")
    code, out, err = run("check", "--batch", jobs, "--out", "out.jsonl")
    assert (code, err) == (0, "")
    assert out == ("judged 5 jobs: 2 correct, 1 rejected, 1 unavailable, 1 wrong; out.jsonl\n")
    rows = rows_of(folder / "out.jsonl")
    assert [row["id"] for row in rows] == [f"job-{n}" for n in range(5)]
    statuses = ["correct", "wrong", "rejected", "unavailable", "correct"]
    assert [row["status"] for row in rows] == statuses
    assert all(set(PROMISED) <= set(row) for row in rows)
    assert rows[4]["speedup"] == 2.5 and rows[0]["timed"] is False
    assert len(judges[0].judged) == 4, "a refused kernel is not run"
    assert judges[0].closed


def test_order_holds_whatever_order_verdicts_come_in(run, folder, monkeypatch):
    monkeypatch.setattr(judging, "make_evaluator", lambda *a, **k: Backwards())
    jobs = write_jobs(folder, "right.py", "wrong.py", "refused.py", "fast.py")
    assert run("check", "--batch", jobs, "--out", "out.jsonl", "--workers", "3")[0] == 0
    rows = rows_of(folder / "out.jsonl")
    assert [row["id"] for row in rows] == [f"job-{n}" for n in range(4)]
    assert [row["status"] for row in rows] == ["correct", "wrong", "rejected", "correct"]


def test_unordered_rows_stay_as_they_came(run, folder, monkeypatch):
    monkeypatch.setattr(judging, "make_evaluator", lambda *a, **k: Backwards())
    jobs = write_jobs(folder, "right.py", "wrong.py", "refused.py", "fast.py")
    batch = ("check", "--batch", jobs, "--out", "out.jsonl")
    assert run(*batch, "--unordered")[0] == 0
    came = [row["id"] for row in rows_of(folder / "out.jsonl")]
    assert came == ["job-2", "job-3", "job-1", "job-0"], "refused ones come first"
    assert run(*batch)[0] == 0, "a later run without the option brings them into order"
    assert [row["id"] for row in rows_of(folder / "out.jsonl")] == sorted(came)


@given(st.permutations(range(5)), st.integers(0, 5), st.integers(0, 60))
def test_killed_run_judges_only_what_has_no_row(order, written, torn):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "problem.py").write_text(SAMPLE_PROBLEM.source)
        kernels = [f"kernel{number}.py" for number in range(5)]
        for number, kernel in enumerate(kernels):
            (folder / kernel).write_text(f"{SAMPLE_KERNELS['triton'].source}# {number}\n")
        jobs, out = write_jobs(folder, *kernels), folder / "out.jsonl"
        entries = read_jobs(jobs, "triton", "cpu", RULESETS["strict"])
        verdict = ScriptedEvaluator().evaluate(entries[0].job.problem, entries[0].job.kernel)
        lines = [json.dumps(verdict_row(entries[n], verdict)) + "\n" for n in order]
        half = lines[written][:torn] if written < 5 else ""
        out.write_text("".join(lines[:written]) + half)
        judge = ScriptedEvaluator()
        with mock.patch.object(judging, "make_evaluator", lambda *a, **k: judge):
            CheckCommand(batch=str(jobs), out=str(out)).run()
        assert len(judge.judged) == 5 - written
        assert [row["id"] for row in rows_of(out)] == [f"job-{n}" for n in range(5)]


def test_reordering_keeps_links_and_modes(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "wrong.py")
    lines = jobs.read_text().splitlines(keepends=True)
    jobs.write_text(lines[1])
    (folder / "kept.jsonl").touch(0o640)
    (folder / "out.jsonl").symlink_to("kept.jsonl")
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    mode = (folder / "kept.jsonl").stat().st_mode
    jobs.write_text("".join(lines))
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    assert (folder / "out.jsonl").is_symlink()
    assert (folder / "kept.jsonl").stat().st_mode == mode
    assert [row["id"] for row in rows_of(folder / "kept.jsonl")] == ["job-0", "job-1"]


def test_paths_are_relative_to_the_jobs_file(run, judges, folder, monkeypatch, tmp_path_factory):
    jobs = write_jobs(folder, "right.py", str(folder / "wrong.py"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    assert [row["status"] for row in rows_of(Path("out.jsonl"))] == ["correct", "wrong"]


def test_ids_languages_and_blank_lines(run, judges, folder):
    (folder / "jobs.jsonl").write_text(
        '{"id": 7, "problem": "Synthetic/L1/2", "kernel": "right_cpp.py", "language": "cpp"}\n'
        "\n"
        '{"id": "\u2028", "problem": "problem.py", "kernel": "right.py"}\n'
    )
    assert run("check", "--batch", "jobs.jsonl", "--out", "out.jsonl")[0] == 0
    rows = rows_of(folder / "out.jsonl")
    assert [(row["id"], row["language"]) for row in rows] == [(7, "cpp"), ("\u2028", "triton")]
    assert rows[0]["problem"] == "Synthetic/L1/2"


def test_jobs_that_have_a_row_are_not_judged_again(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "wrong.py")
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    before = (folder / "out.jsonl").read_text()
    jobs = write_jobs(folder, "right.py", "wrong.py", "fast.py")
    code, out, _ = run("check", "--batch", jobs, "--out", "out.jsonl")
    assert code == 0 and out.startswith("judged 1 jobs (2 more were judged before): 1 correct")
    assert len(judges[1].judged) == 1
    assert (folder / "out.jsonl").read_text().startswith(before)
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    assert len(judges) == 2, "no judge is started for nothing"


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_half_written_line_is_dropped_and_judged_again(run, judges, folder, cut):
    jobs = write_jobs(folder, "right.py", "wrong.py", "fast.py")
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    whole = (folder / "out.jsonl").read_bytes()
    (folder / "out.jsonl").write_bytes(whole[:-cut])
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    assert len(judges[1].judged) == 1
    assert (folder / "out.jsonl").read_bytes() == whole


def test_a_row_added_in_the_middle_ends_up_in_its_place(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "wrong.py", "fast.py")
    lines = jobs.read_text().splitlines(keepends=True)
    jobs.write_text(lines[0] + lines[2])
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    jobs.write_text("".join(lines))
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    assert [row["id"] for row in rows_of(folder / "out.jsonl")] == ["job-0", "job-1", "job-2"]
    assert [p.name for p in folder.glob(".out*")] == []


def test_an_interrupt_keeps_the_rows_so_far(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "stop.py", "wrong.py")
    code, _, err = run("check", "--batch", jobs, "--out", "out.jsonl")
    assert (code, err) == (130, "kernelgym: interrupted\n")
    assert [row["id"] for row in rows_of(folder / "out.jsonl")] == ["job-0"]
    (folder / "stop.py").write_text((folder / "right.py").read_text())
    assert run("check", "--batch", jobs, "--out", "out.jsonl")[0] == 0
    assert len(rows_of(folder / "out.jsonl")) == 3
    assert len(judges[1].judged) == 2


GOOD = '{"id": "a", "problem": "problem.py", "kernel": "right.py"}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"problem": "problem.py", "kernel": "right.py"}', "'id' must be"),
        ('{"id": true, "problem": "problem.py", "kernel": "right.py"}', "'id' must be"),
        ('{"id": "b", "kernel": "right.py"}', "'problem' must be an id or a path"),
        ('{"id": "b", "problem": "problem.py", "kernel": 3}', "'kernel' must be a path"),
        ('{"id": "b", "problem": "problem.py", "kernel": "gone.py"}', "gone.py"),
        ('{"id": "b", "problem": "problem.py", "kernel": "latin.py"}', "not UTF-8"),
        ('{"id": "b", "problem": "nomodel.py", "kernel": "right.py"}', "does not define Model"),
        ('{"id": "b", "problem": "Synthetic/L8/1", "kernel": "right.py"}', "unknown problem"),
        (f'{GOOD[:-1]}, "id": "b", "language": "cuda"}}', "does not run on device"),
        (f'{GOOD[:-1]}, "id": "b", "language": ["x"]}}', "unknown language"),
        (GOOD, "id 'a' is on line 1 already"),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_nothing_is_judged(run, judges, folder, line, said):
    (folder / "jobs.jsonl").write_text(f"{GOOD}\n\n{line}\n")
    code, out, err = run("check", "--batch", "jobs.jsonl", "--out", "out.jsonl")
    assert (code, out) == (2, "")
    assert "jobs.jsonl, line 3: " in err and said in err
    assert len(err.splitlines()) == 1
    assert not judges and not (folder / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--batch", "jobs.jsonl"), "--batch needs --out"),
        (("--batch", "gone.jsonl", "--out", "o"), "cannot read jobs file 'gone.jsonl'"),
        (("--batch", "empty.jsonl", "--out", "o"), "holds no jobs"),
        (("--batch", "jobs.jsonl", "--out", "no/where"), "cannot write 'no/where'"),
        (("--batch", "jobs.jsonl", "--out", "."), "cannot write '.'"),
        (("--batch", "jobs.jsonl", "--out", "./jobs.jsonl"), "is the file that is read"),
        (("--batch", "jobs.jsonl", "--out", "o", "--json"), "--json cannot be combined"),
        (("right.py", "--batch", "jobs.jsonl", "--out", "o"), "FILE cannot be combined"),
        (("--batch", "jobs.jsonl", "--out", "o", "--workers", "0"), "workers must be at least 1"),
        (("right.py", "--problem", "problem.py", "--unordered"), "--unordered needs --batch"),
    ],
)
def test_usage_errors(run, judges, folder, argv, said):
    write_jobs(folder, "right.py")
    (folder / "empty.jsonl").write_text("\n")
    code, out, err = run("check", *argv)
    assert (code, out) == (2, "") and said in err


@pytest.mark.parametrize("text", ["one line of notes\n", "notes", '{"name": "no verdict"}'])
def test_output_that_is_another_programs_file_is_refused_and_kept(run, judges, folder, text):
    write_jobs(folder, "right.py")
    (folder / "notes.txt").write_text(text)
    code, _, err = run("check", "--batch", "jobs.jsonl", "--out", "notes.txt")
    assert code == 2 and "line 1: not a verdict row" in err
    assert (folder / "notes.txt").read_text() == text and not judges


def test_a_job_may_name_ruleset_and_precision(run, judges, folder):
    jobs = folder / "jobs.jsonl"
    row = {"problem": "problem.py", "kernel": "right.py"}
    own = [{}, {"ruleset": "kernelbench"}, {"precision": "bf16"}, {"precision": "own"}]
    jobs.write_text("".join(json.dumps({"id": n} | row | m) + "\n" for n, m in enumerate(own)))
    batch = ("check", "--batch", jobs, "--out", "out.jsonl")
    assert run(*batch)[0] == 0
    strict, bench = RULESETS["strict"], RULESETS["kernelbench"]
    half = dataclasses.replace(strict, precision="bf16")
    labels = [strict.label, bench.label, half.label, strict.label]
    assert [row["ruleset"] for row in rows_of(folder / "out.jsonl")] == labels
    assert all(judge.closed for judge in judges)
    assert "4 more were judged before" in run(*batch)[1]
    code, _, err = run(*batch, "--precision", "fp16")
    assert code == 2 and f"under ruleset {strict.label!r}" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"precision": 16}, "'precision' must be a name, got 16"),
        ({"ruleset": "loose"}, "unknown ruleset 'loose'"),
        ({"ruleset": "strict@19248b98"}, "unknown ruleset 'strict@19248b98'"),
    ],
)
def test_bad_rules_of_a_job_are_named_by_line(run, judges, folder, more, said):
    jobs = write_jobs(folder, "right.py", **more)
    code, _, err = run("check", "--batch", jobs, "--out", "out.jsonl")
    assert code == 2 and "line 1" in err and said in err


def test_rows_of_other_rules_jobs_or_kernels_are_not_mixed_in(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "wrong.py")
    batch = ("check", "--batch", jobs, "--out", "out.jsonl")
    assert run(*batch)[0] == 0
    before = (folder / "out.jsonl").read_text()
    code, _, err = run(*batch, "--ruleset", "kernelbench")
    assert code == 2 and "under ruleset 'strict@" in err
    (folder / "wrong.py").write_text((folder / "fast.py").read_text())
    code, _, err = run(*batch)
    assert code == 2 and "'job-1', but its kernel has changed" in err
    write_jobs(folder, "right.py")
    code, _, err = run(*batch)
    assert code == 2 and "'job-1', which is not among the jobs" in err
    assert (folder / "out.jsonl").read_text() == before


def test_a_spoilt_line_in_the_middle_is_not_thrown_away(run, judges, folder):
    jobs = write_jobs(folder, "right.py", "wrong.py")
    batch = ("check", "--batch", jobs, "--out", "out.jsonl")
    assert run(*batch)[0] == 0
    text = (folder / "out.jsonl").read_text()
    (folder / "out.jsonl").write_text("spoilt\n" + text)
    code, _, err = run(*batch)
    assert code == 2 and "line 1: not a verdict row" in err
    assert (folder / "out.jsonl").read_text() == "spoilt\n" + text


def test_two_runs_cannot_write_one_file(run, judges, folder):
    import fcntl

    jobs = write_jobs(folder, "right.py")
    with (folder / "out.jsonl").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, _, err = run("check", "--batch", jobs, "--out", "out.jsonl")
    assert code == 2 and "being written by another run" in err


@pytest.mark.slow
def test_really_judged(run, folder):
    jobs = write_jobs(folder, "right.py", "refused.py", "wrong.py")
    slip = (folder / "wrong.py").read_text().replace("* 2.0", "* 3.0")
    (folder / "wrong.py").write_text(slip)
    assert run("check", "--batch", jobs, "--out", "out.jsonl", "--workers", "2")[0] == 0
    rows = rows_of(folder / "out.jsonl")
    assert [row["status"] for row in rows] == ["correct", "rejected", "wrong"]
    assert rows[0]["isolation"] and not rows[1]["isolation"]
