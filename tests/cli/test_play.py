"""`kernelgym play` and the scripted agent."""

from __future__ import annotations

import io
import sys

import pytest

from kernelgym.answers.parsing import parse
from kernelgym.cli import judging
from kernelgym.cli.play import read_reply
from kernelgym.cli.scripted import scripted_agent
from kernelgym.errors import UsageError
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Feedback

PROBLEM = get_problem("Synthetic/L1/2")


def told(category: str) -> Feedback:
    return Feedback(category, "a headline")


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_person_plays_until_solved(run, judges, folder, monkeypatch):
    typed(monkeypatch, f"hello\nEOF\n{(folder / 'wrong.py').read_text()}EOF\n@right.py\nmore\n")
    code, out, err = run("play", "--problem", "problem.py")
    assert (code, err) == (0, "")
    assert "class Model(nn.Module)" in out, "the first observation is shown"
    assert [line.split()[1] for line in out.splitlines()[-3:]] == ["no_kernel", "wrong", "correct"]
    assert "ended solved" in out and len(judges[0].judged) == 2


def test_leaving_early_shows_what_was_played(run, judges, folder, monkeypatch):
    typed(monkeypatch, "hello\nEOF\n")
    code, out, _ = run("play", "--problem", "problem.py")
    assert code == 0 and "ended early" in out
    typed(monkeypatch, "")
    code, out, _ = run("play", "--problem", "problem.py")
    assert code == 0 and "no turn was played" in out


def test_an_unreadable_reply_file_is_asked_for_again(folder, capsys):
    module = ["@triton.jit\n", "def kernel(): pass\n", "EOF\n"]
    assert read_reply(iter(module)) == "@triton.jit\ndef kernel(): pass\n"
    assert read_reply(iter(["@gone\n", "@reply.txt\n"])) == (folder / "reply.txt").read_text()
    assert "cannot read reply file 'gone'" in capsys.readouterr().out
    assert read_reply(iter(["x\n", "@reply.txt\n", "EOF\n"])) == "x\n@reply.txt\n"
    assert read_reply(iter(["x\n"])) == "x\n"
    assert read_reply(iter(["\n"])) is None


def test_an_eof_without_a_reply_takes_no_turn(run, judges, folder, monkeypatch):
    typed(monkeypatch, "@wrong.py\nEOF\n\nEOF\n@right.py\nEOF\n")
    _, out, _ = run("play", "--problem", "problem.py")
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["wrong", "correct"]


def test_the_scripted_agent_plays_an_environment(run, folder, monkeypatch):
    judge = ScriptedEvaluator([verdict("wrong"), verdict("correct", speedup=2.0)])
    monkeypatch.setattr(judging, "make_evaluator", lambda *a, **k: judge)
    argv = ("play", "Synthetic-L2-MultiTurn", "--agent", "scripted", "--seed", "4")
    code, out, err = run(*argv, "--language", "cpp")
    assert (code, err) == (0, "")
    assert "ended solved" in out and "2.00x" in out and "Your kernel runs, but" in out
    assert len({job.kernel.source for job in judge.judged}) == 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "needs one of an environment id and --problem"),
        (("Synthetic-L1-MultiTurn", "--problem", "problem.py"), "needs one of"),
        (("Foo-v0",), "unknown environment 'Foo-v0'"),
        (("CartPole-v1",), "unknown environment 'CartPole-v1'"),
        (("Synthetic-L1-MultiTrun",), "did you mean Synthetic-L1-MultiTurn-v0"),
        (("Synthetic-L1-MultiTurn", "--max-turns", "0"), "at least 1"),
        (("Synthetic-L1-MultiTurn", "--seed", "-1"), "--seed must be at least 0"),
        (("Synthetic-L1-MultiTurn", "--reward", "gold"), "unknown reward preset"),
        (("Synthetic-L1-MultiTurn", "--stop-when", "soon"), "unknown stop rule"),
        (("--problem", "problem.py", "--agent", "scripted"), "knows kernels for the suite"),
    ],
)
def test_usage_errors(run, judges, folder, argv, said):
    code, out, err = run("play", *argv)
    assert (code, out) == (2, "") and said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("language", ["triton", "cpp"])
def test_scripted_agent_repairs_its_kernel_only_when_told_of_a_fault(language):
    agent = scripted_agent(PROBLEM, language, 3)
    first, repeated, repaired, kept = (
        parse(agent(found), language)
        for found in (None, told("infrastructure"), told("runtime"), told("success"))
    )
    assert first.defects == () and first.kernel == repeated.kernel
    assert first.kernel != repaired.kernel == kept.kernel


def test_scripted_agent_without_a_kernel_is_refused():
    with pytest.raises(UsageError, match="Synthetic only"):
        scripted_agent(SAMPLE_PROBLEM, "triton")
    with pytest.raises(UsageError, match="cuda"):
        scripted_agent(PROBLEM, "cuda")


@pytest.mark.slow
def test_scripted_agent_repairs_its_kernel_when_judged(run):
    code, out, err = run("play", "--problem", PROBLEM.id, "--agent", "scripted")
    assert (code, err) == (0, "")
    assert "ended solved" in out
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["wrong", "correct"]
