"""Winners are measured again once, by the same rules, and the second verdict counts."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from kernelgym.benchmark import report
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.benchmark.winners import measure_winners, unconfirmed
from kernelgym.cli import judging, main
from kernelgym.errors import UsageError
from kernelgym.records.trajectories import write_records
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Finding, Severity
from kernelgym.verdict import HOST_BUSY
from support.benchmark_runs import LOST, WRONG, eval_run, fast, made, record, spell
from support.html_pages import parsed

BUSY = dataclasses.replace(
    fast(9.4, 1.24), findings=(Finding(HOST_BUSY, "pairs waited", Severity.SOFT),)
)


def busy_run(tmp_path: Path) -> Path:
    """A and B have times that their verdicts distrust; C has one that counts."""
    played = [record(made([BUSY], name), 0) for name in "AB"] + [record(made([fast(3.0)], "C"), 0)]
    return eval_run(tmp_path / "busy", {}, episodes=played)


def test_distrusted_time_is_never_certain_and_is_counted(tmp_path: Path) -> None:
    found = report(busy_run(tmp_path))
    run = found.to_dict()["runs"][0]
    assert (run["counts"]["timed"], run["counts"]["distrusted"]) == (3, 2)
    card = run["tables"]["all problems"]
    assert card["fast_1"]["value"] == 1.0
    assert card["fast_1_certain"]["value"] == pytest.approx(1 / 3)
    assert card["correct"]["value"] == 1.0, "the kernels are correct all the same"
    assert card["speedup"]["distrusted"] == card["fast_1"]["distrusted"] == 2
    assert "distrusted" not in card["fast_1_certain"] and "distrusted" not in card["correct"]
    page = parsed(found.html())
    assert "2 of 3 times distrusted: host busy" in page.text
    assert re.search(r"\d+x \([^)]*\), 2 of the times distrusted", page.text)
    assert found.html().count('class="cell distrusted"') >= 2
    assert found.html().count("cell fast1") == 1, "in the legend only"


def test_time_that_a_busy_host_left_out_is_counted_and_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = dataclasses.replace(BUSY, timing=None)
    folder = eval_run(tmp_path / "busy", {}, episodes=[record(made([lost, BUSY], "A"), 0)])
    found = report(folder)
    counts = found.to_dict()["runs"][0]["counts"]
    assert (counts["timed"], counts["distrusted"], counts["distrusted_untimed"]) == (1, 2, 1)
    assert "2 of 2 times distrusted, 1 of them missing: host busy" in parsed(found.html()).text
    judge = ScriptedEvaluator([fast(1.1), fast(1.2)])
    monkeypatch.setattr(judging, "make_evaluator", lambda *_: judge)
    assert main(["eval", "--retime", str(folder)]) == 0
    assert len(judge.judged) == 2
    assert [turn.verdict.speedup for turn in read_run(folder).episodes[0].turns] == [1.1, 1.2]


def test_retime_judges_just_the_distrusted_times_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = busy_run(tmp_path)
    judge = ScriptedEvaluator([fast(0.9), BUSY])
    monkeypatch.setattr(judging, "make_evaluator", lambda *_: judge)
    assert main(["eval", "--retime", str(folder)]) == 1
    assert len(judge.judged) == 2 and all(judge.seeds)
    assert "2 kernels of busy judged again; 1 times are still distrusted" in capsys.readouterr().out
    judge = ScriptedEvaluator([LOST])
    monkeypatch.setattr(judging, "make_evaluator", lambda *_: judge)
    assert main(["eval", "--retime", str(folder)]) == 1
    assert len(judge.judged) == 1
    speeds = [played.outcome.first.speedup for played in read_run(folder).episodes]  # type: ignore[union-attr]
    assert speeds == [0.9, 9.4, 3.0]
    judge = ScriptedEvaluator([fast(1.1)])
    monkeypatch.setattr(judging, "make_evaluator", lambda *_: judge)
    assert main(["eval", "--retime", str(folder)]) == 0
    capsys.readouterr()
    assert main(["eval", "--retime", str(folder)]) == 0
    assert "no time of busy is distrusted" in capsys.readouterr().out
    assert report(folder).views[0].counts.distrusted == 0


def run_of(tmp_path: Path) -> Path:
    """A: one timed turn; B: three, of which the second is fastest; C: cut; D: wrong."""
    return eval_run(tmp_path / "run", {"A": "w2", "B": "235", "C": "23-", "D": "ww"})


def test_second_measurements_count(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    assert [played.key[0] for played in unconfirmed(read_run(folder))] == ["Test/L1/B"]
    assert report(folder).views[0].counts.unconfirmed == 1
    judge = ScriptedEvaluator([LOST, fast(1.5)])
    assert measure_winners(read_run(folder), judge) == 1
    assert unconfirmed(read_run(folder)), "the judge had failed"
    assert measure_winners(read_run(folder), judge) == 1
    assert measure_winners(read_run(folder), judge) == 0
    assert all(judge.seeds) and len(set(judge.seeds)) == 2, "no cache may answer"
    found = report(folder)
    assert found.views[0].counts.unconfirmed == 0
    best = {each.problem: each.best for each in found.runs[0].outcomes}["Test/L1/B"]
    assert best is not None and best.speedup == 1.5


def test_a_winner_that_fails_again_is_not_solved(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    measure_winners(read_run(folder), ScriptedEvaluator([WRONG]))
    card = report(folder).to_dict()["runs"][0]["tables"]["all problems"]
    assert card["correct_within"]["value"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("judge", [{"ruleset": "kernelbench"}, {"device": "cuda:0"}])
def test_other_rules_or_devices_are_refused(tmp_path: Path, judge: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="needs the same"):
        measure_winners(read_run(run_of(tmp_path)), ScriptedEvaluator(**judge))  # type: ignore[arg-type]


def test_episodes_of_a_file_keep_no_winners(tmp_path: Path) -> None:
    write_records(tmp_path / "e.jsonl", [record(each) for each in spell("23")])
    with pytest.raises(UsageError, match="none of an eval run"):
        measure_winners(read_run(tmp_path / "e.jsonl"), ScriptedEvaluator())


def test_the_command_measures_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = ScriptedEvaluator([fast(1.5)])
    monkeypatch.setattr(judging, "make_evaluator", lambda *_: judge)
    folder = run_of(tmp_path)
    assert main(["report", str(folder), "--measure-winners"]) == 0
    assert judge.closed and (folder / "winners.jsonl").exists()
    assert main(["report", str(folder), "--measure-winners"]) == 0
    assert len(judge.judged) == 1
    capsys.readouterr()
