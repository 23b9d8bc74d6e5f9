"""`kernelgym check` on one kernel: the verdict, its JSON, exit codes and usage errors."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from kernelgym.cli import judging
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Status, Verdict

CHECK = ("--problem", "problem.py")


@pytest.mark.parametrize(
    ("kernel", "code", "status"),
    [
        ("right.py", 0, Status.CORRECT),
        ("fast.py", 0, Status.CORRECT),
        ("wrong.py", 1, Status.WRONG),
        ("lost.py", 1, Status.UNAVAILABLE),
        ("refused.py", 1, Status.REJECTED),
        ("nomodel.py", 1, Status.REJECTED),
    ],
)
def test_the_exit_code_tells_correct_from_anything_else(run, judges, folder, kernel, code, status):
    assert run("check", kernel, *CHECK)[0] == code
    got, out, err = run("check", kernel, *CHECK, "--json")
    assert (got, err) == (code, "")
    verdict = Verdict.from_dict(json.loads(out))
    assert verdict.status is status
    assert len(out.splitlines()) == 1
    assert all(judge.closed for judge in judges)


def test_a_refused_kernel_is_not_run_and_says_why(run, judges, folder):
    _, out, _ = run("check", "refused.py", *CHECK)
    assert judges[0].judged == []
    assert "rejected" in out and "ctypes" in out and "line 1" in out and "not run" in out
    code, _, _ = run("check", "refused.py", *CHECK, "--ruleset", "kernelbench")
    assert code == 0 and len(judges[1].judged) == 1


def test_a_reader_is_told_speed_and_interval(run, judges, folder):
    _, out, _ = run("check", "fast.py", *CHECK)
    assert "2.50x" in out and "at least 2.38x" in out
    _, out, _ = run("check", "right.py", *CHECK)
    assert "not timed: kernels in Triton are not timed on cpu" in out


def test_a_reply_is_parsed_first(run, judges, folder):
    assert run("check", "reply.txt", *CHECK, "--reply")[0] == 0
    (folder / "empty.txt").write_text("I would rather not.")
    code, out, _ = run("check", "empty.txt", *CHECK, "--reply", "--json")
    assert code == 1 and json.loads(out)["status"] == "no_kernel"


def test_a_dash_reads_standard_input(run, judges, folder, monkeypatch):
    text = (folder / "wrong.py").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run("check", "-", *CHECK)[0] == 1
    assert judges[0].judged[0].kernel.source == text.decode()


def test_replay_hands_the_seed_on(run, judges, folder):
    assert run("check", "right.py", *CHECK, "--replay", "00ff")[0] == 0
    assert judges[0].seeds == ["00ff"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "needs a FILE"),
        (("right.py",), "needs --problem"),
        (("missing.py", *CHECK), "cannot read kernel file 'missing.py'"),
        ((".", *CHECK), "Is a directory"),
        (("latin.py", *CHECK), "'latin.py' is not UTF-8"),
        (("right.py", "--problem", "nomodel.py"), "nomodel.py does not define Model"),
        (("right.py", "--problem", "missing.py"), "cannot read missing.py"),
        (("right.py", "--problem", "x" * 5000), "unknown problem"),
        (("right.py", "--problem", "Synthetic/L9/1"), "unknown problem 'Synthetic/L9/1'"),
        (("right.py", "--problem", "Sinthetic/L1/1"), "did you mean Synthetic/L1/1"),
        (("right.py", *CHECK, "--language", "tritn"), "did you mean triton"),
        (("right.py", *CHECK, "--language", "cuda"), "this device runs: triton, cpp"),
        (("right.py", *CHECK, "--device", "tpu"), "known: cpu"),
        (("right.py", *CHECK, "--ruleset", "lax"), "known: strict, kernelbench"),
        (("right.py", *CHECK, "--replay", "xyz"), "hexadecimal"),
        (("right.py", *CHECK, "--replay", "0f", "--ruleset", "kernelbench"), "public"),
        (("right.py", *CHECK, "--out", "x"), "--out needs --batch"),
        (("right.py", *CHECK, "--workers", "2"), "--workers needs --batch"),
    ],
)
def test_usage_errors_are_one_line_and_code_2(run, judges, folder, argv, said):
    code, out, err = run("check", *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1 and err.startswith("kernelgym: error: ")
    assert not any(judge.judged for judge in judges)


def test_no_compiler_is_a_usage_error(run, judges, folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    code, _, err = run("check", "right_cpp.py", *CHECK, "--language", "cpp")
    assert code == 2 and "no C++ compiler found" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("check", "right.py", *CHECK, "--relpay", "0f"), ("--relpay", "known: ", "--replay")),
        (("check", "right.py", *CHECK, "--workers", "x"), ("--workers", "'x'")),
        (("check", "right.py", "more.py", *CHECK), ("more.py", "known: ", "`kernelgym check --h")),
        (("ls", "--level", "one"), ("--level", "'one'", "`kernelgym ls --help`")),
        (("show",), ("PROBLEM", "`kernelgym show --help`")),
        (("play", "--agent", "robot"), ("'robot'", "'scripted'")),
        (("-v", "ls", "--nosuch"), ("--nosuch", "--exclude-degenerate")),
        (("nosuch",), ("nosuch", "known: ls, show, check, play, fetch", "`kernelgym --help`")),
    ],
)
def test_options_that_do_not_exist_or_fit_are_one_line_as_well(run, judges, folder, argv, said):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1 and err.startswith("kernelgym: error: ")
    assert all(piece in err for piece in said), err
    assert not set(err) & set("│─╭╰"), err


def test_a_failure_is_one_line_and_a_traceback_only_with_v(run, judges, folder):
    code, _, err = run("check", "broken_judge.py", *CHECK)
    assert code == 1 and err == "kernelgym: failed: RuntimeError: the judge broke badly\n"
    for argv in (("check", "-v"), ("-v", "check")):
        code, _, err = run(*argv, "broken_judge.py", *CHECK)
        assert code == 1 and "Traceback" in err


def test_an_interrupt_is_code_130(run, judges, folder):
    code, out, err = run("check", "stop.py", *CHECK)
    assert (code, out, err) == (130, "", "kernelgym: interrupted\n")
    assert judges[0].closed


def test_what_a_kernel_prints_cannot_steer_the_terminal(run, folder, monkeypatch):
    nasty = "\x1b[2J[red]\ud800 [/nope]"
    judge = ScriptedEvaluator([verdict("wrong", message=nasty, log=nasty)])
    monkeypatch.setattr(judging, "make_evaluator", lambda *args, **options: judge)
    _, out, _ = run("check", "right.py", *CHECK)
    assert "\x1b" not in out and out.count("\\x1b[2J[red]\\ud800 [/nope]") == 2
    _, out, _ = run("check", "right.py", *CHECK, "--json")
    assert json.loads(out)["message"] == nasty


@pytest.mark.slow
@pytest.mark.parametrize("language", ["triton", "cpp"])
def test_really_judged(run, folder: Path, language):
    name = {"triton": "right.py", "cpp": "right_cpp.py"}[language]
    code, out, err = run("check", name, *CHECK, "--language", language, "--json", "--no-timing")
    found = json.loads(out)
    assert (code, found["status"], err) == (0, "correct", "")
    assert found["isolation"] and found["seed"] and not found["timed"]
    code, out, _ = run("check", name, *CHECK, "--language", language, "--json", "--no-timing",
                       "--replay", found["seed"])  # fmt: skip
    again = json.loads(out)
    same = ("status", "trials", "seed", "max_abs_error", "max_rel_error")
    assert [again[key] for key in same] == [found[key] for key in same]
