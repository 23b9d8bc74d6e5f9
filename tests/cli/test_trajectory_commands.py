"""`kernelgym show-trajectory`, `rescore` and `export`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from kernelgym.cli import console as console_module
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.records.trajectories import read_records
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply
from kernelgym.types import Kernel

EPISODES = (
    ("Synthetic/L1/1", ("wrong", "correct 1.5")),
    ("Synthetic/L1/2", ("compile_error", "correct 3.0")),
    ("Synthetic/L1/2", ("nothing",) * 4),
    ("Synthetic/L1/1", ("correct 1.25",)),
)


def answer(says: str, number: int) -> str:
    if says == "nothing":
        return f"I give up. [bold]{number}[/bold]\x1b[31m"
    source = f"{SAMPLE_KERNELS['cpp'].source}\n# turn {number}\n# verdict: {says}\n"
    return reply(Kernel(source, "cpp"), f"Thought {number}.")


@pytest.fixture
def played(folder: Path) -> Path:
    """A file of four episodes on problems of the Synthetic suite."""
    path = folder / "played.jsonl"
    for problem_id, says in EPISODES:
        problem = get_problem(problem_id)
        env = RecordTrajectories(
            KernelEnv(
                level=None, problems=[problem], language="cpp", reward="stage3",
                evaluator=ScriptedEvaluator(),
            ),
            path,
        )  # fmt: skip
        env.reset()
        for number, each in enumerate(says, 1):
            env.step(answer(each, number))
        env.close()
    return path


def test_a_file_is_shown_as_a_table(run, played):
    code, out, err = run("show-trajectory", played)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert [line[1] for line in lines[1:]] == [problem for problem, _ in EPISODES]
    assert lines[2] == ["2", "Synthetic/L1/2", "cpp", "cpu", "2", "solved", "correct", "3.00x",
                        lines[2][-1]]  # fmt: skip
    assert lines[3][4:7] == ["4", "budget", "no_kernel"]


def test_one_episode_is_shown_turn_by_turn(run, played):
    code, out, _ = run("show-trajectory", played, "--index", "1")
    assert code == 0
    assert "episode 1: Synthetic/L1/1" in out and "reward stage3" in out
    assert out.index("Thought 1.") < out.index("-- wrong") < out.index("Thought 2.")
    assert "+# turn 2" in out  # the second kernel as what changed
    assert "ended solved" in out and "return (gamma 0.4)" in out
    assert "\x1b" not in out and "[bold]" not in out
    _, last, _ = run("show-trajectory", played, "--index", "-1")
    assert "episode 4: Synthetic/L1/1" in last


def test_the_best_episode(run, played):
    code, out, _ = run("show-trajectory", played, "--best")
    assert code == 0 and "episode 2: Synthetic/L1/2" in out


def test_one_turn_is_shown_whole(run, played):
    code, out, _ = run("show-trajectory", played, "--best", "--turn", "2")
    assert code == 0
    assert "load_inline" in out and "Thought 2." in out and "Thought 1." not in out
    assert "speed" in out and "part of the score" in out
    code, out, _ = run("show-trajectory", played, "--index", "3", "--turn", "-1")
    assert code == 0 and "I give up. [bold]4[/bold]\\x1b[31m" in out
    code, out, _ = run("show-trajectory", played, "--index", "1", "--turn", "2", "--prompt")
    assert code == 0 and get_problem("Synthetic/L1/1").source.strip() in out
    assert out.index("What became of turn 1") < out.index("Thought 2.")


def test_a_terminal_gets_colour(run, played, monkeypatch):
    from rich.console import Console

    box = io.StringIO()

    def terminal(file=None):
        return Console(file=box, force_terminal=True, width=100, markup=False, highlight=False)

    monkeypatch.setattr(console_module, "console", terminal)
    monkeypatch.setattr("kernelgym.cli.transcript.console", terminal)
    code, _, _ = run("show-trajectory", played, "--index", "1")
    assert code == 0 and "\x1b[" in box.getvalue() and "╭" in box.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--index", "5"), "--index 5: there are 4 episodes"),
        (("--index", "0"), "--index 0: there are 4 episodes"),
        (("--index", "1", "--turn", "3"), "--turn 3: there are 2 turns"),
        (("--index", "1", "--best"), "give one of them"),
        (("--turn", "1"), "give --index or --best"),
        (("--index", "1", "--prompt"), "name it with --turn"),
        (("--gamma", "2"), "--gamma must lie"),
    ],
)
def test_what_is_not_there_is_said(run, played, arguments, said):
    code, out, err = run("show-trajectory", played, *arguments)
    assert (code, out) == (2, "") and said in err


def test_files_that_are_none(run, folder):
    (folder / "empty.jsonl").write_text("")
    (folder / "other.jsonl").write_text('{"id": 1}\n')
    assert "holds no episode" in run("show-trajectory", "empty.jsonl")[2]
    code, _, err = run("show-trajectory", "other.jsonl")
    assert code == 2 and "other.jsonl, line 1: an episode of schema None" in err
    assert run("show-trajectory", "none.jsonl")[0] == 2


def test_a_cut_line_is_noted(run, played):
    whole = played.read_bytes()
    played.write_bytes(whole[:-20])
    code, out, err = run("show-trajectory", played)
    assert code == 0 and len(out.splitlines()) == 4
    assert err == "kernelgym: note: line 4 is incomplete and left out\n"


# -- rescore -------------------------------------------------------------------------------------


def test_rescore_writes_the_scores_of_another_preset(run, played):
    code, out, err = run("rescore", played, "--reward", "sparse", "--out", "sparse.jsonl")
    assert (code, err) == (0, "") and "4 episodes scored by sparse, 4 of them differently" in out
    scores = [record.trajectory.scores for record in read_records("sparse.jsonl")]
    assert scores == [(0.0, 1.0), (0.0, 1.0), (0.0,) * 4, (1.0,)]
    assert {record.reward for record in read_records("sparse.jsonl")} == {"sparse"}
    run("rescore", "sparse.jsonl", "--reward", "stage3", "--out", "back.jsonl")
    assert Path("back.jsonl").read_bytes() == played.read_bytes()


def test_rescore_with_another_stop_rule(run, played):
    code, _, _ = run(
        "rescore", played, "--reward", "stage3", "--out", "short.jsonl", "--stop-when",
        "no_improvement:1",
    )  # fmt: skip
    assert code == 0
    found = [(len(r.trajectory.turns), r.trajectory.ended) for r in read_records("short.jsonl")]
    assert found[2] == (2, "no_improvement")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reward", "stage9", "--out", "x.jsonl"), "unknown reward preset 'stage9'"),
        (("--reward", "sparse", "--out", "played.jsonl"), "is the file that is read"),
        (("--reward", "sparse", "--out", "no/x.jsonl"), "cannot write"),
        (("--reward", "sparse", "--out", "x.jsonl", "--stop-when", "soon"), "unknown stop rule"),
    ],
)
def test_rescore_refuses(run, played, arguments, said):
    before = played.read_bytes()
    code, _, err = run("rescore", played, *arguments)
    assert code == 2 and said in err
    assert played.read_bytes() == before and not Path("x.jsonl").exists()


# -- export --------------------------------------------------------------------------------------


def rows(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_export_sft(run, played):
    code, out, _ = run("export", played, "--format", "sft", "--out", "sft.jsonl")
    assert code == 0 and "3 examples written to sft.jsonl" in out
    found = rows("sft.jsonl")
    assert [row["problem_id"] for row in found] == [f"Synthetic/L1/{n}" for n in (1, 2, 1)]
    assert all(row["messages"][-1]["role"] == "assistant" for row in found)  # type: ignore[index]
    code, out, _ = run(
        "export", played, "--format", "completions", "--out", "one.jsonl", "--most", "1"
    )
    assert code == 0 and [row["turn"] for row in rows("one.jsonl")] == [1, 1]


def test_export_of_answers_without_a_valid_score_says_why_none_is_written(run, played, folder):
    (folder / "untimed.jsonl").write_text(
        played.read_text().replace('"valid": true', '"valid": false')
    )
    code, out, _ = run("export", "untimed.jsonl", "--format", "sft", "--out", "rows.jsonl")
    assert code == 0 and "0 examples written" in out
    assert "no valid score" in out and "kernelgym rescore" in out


def test_export_preferences(run, played):
    code, out, _ = run("export", played, "--format", "preferences", "--out", "dpo.jsonl")
    assert code == 0 and "1 pair written" in out
    (row,) = rows("dpo.jsonl")
    assert row["problem_id"] == "Synthetic/L1/1"
    code, out, _ = run(
        "export", played, "--format", "preferences", "--out", "dpo.jsonl", "--pairs", "problem"
    )
    assert "2 pairs written" in out and len(rows("dpo.jsonl")) == 2
    code, out, _ = run(
        "export", played, "--format", "preferences", "--out", "dpo.jsonl", "--margin", "9"
    )
    assert code == 0 and "0 pairs written" in out and "--pairs problem" in out


def test_the_rows_are_a_data_set(run, played):
    datasets = pytest.importorskip("datasets")
    run("export", played, "--format", "preferences", "--out", "dpo.jsonl", "--pairs", "problem")
    found = datasets.Dataset.from_list(rows("dpo.jsonl"))
    assert {"prompt", "chosen", "rejected"} <= set(found.column_names)
    assert set(found[0]["prompt"][0]) == {"role", "content"}


def test_export_finds_sources_that_were_left_out(run, played, folder):
    from kernelgym.records.trajectories import write_records

    records = list(read_records(played))
    write_records(folder / "bare.jsonl", records, source=False)
    for name in ("played", "bare"):
        code, _, err = run("export", f"{name}.jsonl", "--format", "sft", "--out", f"{name}.sft")
        assert (code, err) == (0, "")
    assert Path("played.sft").read_bytes() == Path("bare.sft").read_bytes()


def test_export_refuses_prompts_that_were_not_read(run, played, folder):
    lines = [json.loads(line) for line in played.read_text().splitlines()]
    for line in lines:
        line["turns"][0]["observation"] = "0" * 16
    (folder / "old.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, err = run("export", "old.jsonl", "--format", "sft", "--out", "x.jsonl")
    assert code == 2 and "--unchecked" in err and not Path("x.jsonl").exists()
    code, _, _ = run("export", "old.jsonl", "--format", "sft", "--out", "x.jsonl", "--unchecked")
    assert code == 0 and len(rows("x.jsonl")) == 3
