"""`kernelgym play`, the scripted agent, and the demo."""

from __future__ import annotations

import io
import sys

import pytest

from kernelgym.answers.parsing import parse
from kernelgym.cli import judging
from kernelgym.cli.demo import Scene, play_scene, scenes
from kernelgym.cli.demo_kernels import GATED_NORM, gated_norm_drafts, rnn_drafts
from kernelgym.cli.play import read_reply
from kernelgym.cli.scripted import Draft, ScriptedAgent, scripted_agent, synthetic_drafts
from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.suites import get_problem, suite
from kernelgym.suites.base import check_source
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Feedback, Kernel

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


def test_the_agent_goes_on_only_when_told_of_a_fault():
    drafts = [Draft(Kernel(f"class ModelNew: v = {n}\n", "triton"), "") for n in range(3)]
    agent = ScriptedAgent(drafts)

    def version(text: str) -> str:
        kernel = parse(text, "triton").kernel
        assert kernel is not None
        return kernel.source[-2]

    assert version(agent.answer()) == "0"
    assert version(agent.answer(told("infrastructure"))) == "0"
    assert version(agent.answer(told("runtime"))) == "1"
    assert version(agent.answer(told("slow"))) == "2"
    assert version(agent.answer(told("success"))) == "2"
    with pytest.raises(UsageError):
        ScriptedAgent([])


@pytest.mark.parametrize("language", ["triton", "cpp"])
def test_its_answers_are_clean_and_begin_broken(language):
    broken, right = synthetic_drafts(PROBLEM, language, seed=3)
    assert broken.kernel != right.kernel
    reply = parse(scripted_agent(PROBLEM, language, 3).answer(), language)
    assert reply.defects == () and reply.kernel == broken.kernel
    with pytest.raises(UsageError, match="Synthetic only"):
        scripted_agent(SAMPLE_PROBLEM, language)


def test_an_unknown_language_has_no_drafts():
    with pytest.raises(UsageError, match="cuda"):
        synthetic_drafts(PROBLEM, "cuda")


def test_drafts_differ_from_each_other():
    check_source(GATED_NORM, "the demo's problem")
    for drafts in (gated_norm_drafts("triton"), gated_norm_drafts("cpp"), rnn_drafts()):
        sources = [draft.kernel.source for draft in drafts]
        assert len(set(sources)) == len(sources) > 1


def test_the_demo_has_four_scenes_of_two_suites_and_languages(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    found = scenes(0, tmp_path)
    assert len(found) == 4
    assert {scene.language for scene in found} == {"triton", "cpp"}
    assert {scene.problem_id.split("/")[0] for scene in found} == {"Synthetic", "Demo"}


def test_the_demo_takes_kernelbench_only_if_it_is_the_one_it_knows(
    tmp_path, monkeypatch, kernelbench_checkout
):
    level = tmp_path / "checkout" / "level3"
    level.mkdir(parents=True)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(level.parent))
    for name, expected in (("34_Other", "Demo"), ("34_VanillaRNNHidden", "KernelBench")):
        (level / f"{name}.py").write_text(SAMPLE_PROBLEM.source)
        assert scenes(0, tmp_path)[-1].problem_id.split("/")[0] == expected
        (level / f"{name}.py").unlink()


def test_the_demo_fails_if_an_episode_is_not_solved(run, monkeypatch):
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    judge = ScriptedEvaluator([verdict("wrong"), verdict("correct", speedup=2.0)])
    monkeypatch.setattr(judging, "make_evaluator", lambda *a, **k: judge)
    code, out, _ = run("demo")
    assert code == 0 and out.count("wrong, correct") == 4
    judge = ScriptedEvaluator([verdict("wrong")])
    assert run("demo")[0] == 1


def test_one_scene_really_judged(tmp_path, capsys):
    (tmp_path / "gated_norm.py").write_text(GATED_NORM)
    ours = suite(str(tmp_path), name="Demo")
    drafts = gated_norm_drafts("triton")
    scene = Scene("Synthetic-L1-MultiTurn", "triton", "Demo/gated_norm", drafts, ours)
    with LocalEvaluator() as evaluator:
        trajectory = play_scene(scene, evaluator)
    assert [turn.verdict.status.value for turn in trajectory.turns] == ["wrong", "correct"]
    assert "The mean is over the row's width" in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_demo_really_judged(run, monkeypatch):
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    code, out, _ = run("demo")
    assert code == 0
    assert "compile_error, correct" in out and out.count("wrong, correct") == 3
