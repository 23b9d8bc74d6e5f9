"""A search's folder is read by ``kernelgym report``, which knows nothing of the search."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.benchmark import report
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.errors import UsageError
from support.html_pages import parsed
from support.searches import evaluator, run


def test_a_search_is_an_episode_of_its_variants(tmp_path: Path) -> None:
    result = run(tmp_path / "found", evaluator(), builds=6)
    found = read_run(tmp_path / "found")
    assert found.kind == "search" and len(found.episodes) == 1
    (played,) = found.episodes
    assert played.key[0] == result["problem"]
    assert len(played.turns) == 1 + result["evaluations"]
    best = max(turn.verdict.speedup for turn in played.turns)
    assert best == pytest.approx(result["over_reference"]["speedup"])
    assert played.record.writer == "mcgs" and played.record.language == "cpp"
    alone = read_run(next((tmp_path / "found" / "kernels").iterdir()))
    assert [turn.action for turn in alone.episodes[0].turns] == [t.action for t in played.turns]


def test_a_search_has_a_page(tmp_path: Path) -> None:
    run(tmp_path / "found", evaluator(), builds=4)
    page = parsed(report(tmp_path / "found").html())
    assert "solved 1 of 1 problems" in page.text and "what changed" in page.text


def test_a_damaged_search_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "found", evaluator(), builds=2)
    for path in (tmp_path / "found").rglob("baseline/result.json"):
        path.write_text('{"status": "splendid"}')
    with pytest.raises(UsageError, match="cannot be read"):
        read_run(tmp_path / "found")
