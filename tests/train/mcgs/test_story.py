"""``trace.md`` and ``pull_request.md``: the way to the best in words, without keys of states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Verdict
from support import searches
from support.searches import InTurns, timed

HASH = re.compile(r"\b[0-9a-f]{16,}\b")
EVIL = "</code>``` | <b>\nnext"


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    if "-march=native" in kernel.source:
        return verdict("wrong", message=EVIL)
    return searches.judged(problem, kernel)


def in_turns(problem: Problem, kernel: Kernel) -> Verdict:
    found = judged(problem, kernel)
    return timed(kernel) if found.correct else found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outdir = tmp_path_factory.mktemp("story")
    judge = InTurns(judged, in_turns)
    searches.run(outdir, judge, 14, algo="mcgs", command="kernelgym-train budget_builds=14")
    return outdir / "kernels" / "matmul"


def test_trace_tells_each_step_with_its_move_and_times(folder: Path) -> None:
    text = (folder / "trace.md").read_text()
    way = text.partition("## The way to the best")[2].partition("## Evaluations")[0]
    steps = re.findall(r"^### Step \d+: (.+)$", way, re.MULTILINE)
    assert steps and all("(" in words for words in steps)
    assert way.count("| before, ms |") == len(steps)
    assert "Made from the start, as evaluation" in way
    assert way.count("times as fast as the start.") == len(steps)
    for line in way.splitlines():
        if line.startswith("| matmul"):
            before, after = (float(cell.split()[0]) for cell in line.split("|")[2:4])
            assert after < before, "each step of the way is a gain in this table"


def test_trace_tells_what_was_tried_beside_and_why_it_lost(folder: Path) -> None:
    text = (folder / "trace.md").read_text()
    assert "Tried beside it:" in text
    assert "slower" in text and "wrong: " in text


@pytest.mark.parametrize("name", ["trace.md", "pull_request.md"])
def test_story_holds_no_keys_and_no_markup_of_others(name: str, folder: Path) -> None:
    text = (folder / name).read_text()
    prose = text.partition("## Machine")[0] if name == "pull_request.md" else text
    assert not HASH.search(prose)
    assert "<b>" not in prose.replace("\\<b\\>", "")


def test_pull_request_tells_the_change_its_times_and_how_to_repeat_it(folder: Path) -> None:
    text = (folder / "pull_request.md").read_text()
    for heading in ("What changed", "Times", "Machine", "Repeat it", "Change"):
        assert f"\n## {heading}\n" in text
    assert "kernelgym-train budget_builds=14" in text and "--worker" in text
    assert "Host busy: no" in text and "| matmul | tune |" in text
    diff = text.partition("```diff\n")[2].rpartition("```")[0]
    assert diff == (folder / "best" / "candidate.diff").read_text()


def test_pull_request_is_missing_where_the_start_is_the_best(tmp_path: Path) -> None:
    judge = ScriptedEvaluator(lambda *_: verdict("correct", speedup=0.5), workers=3)
    searches.run(tmp_path, judge, 3)
    folder = tmp_path / "kernels" / "matmul"
    assert not (folder / "pull_request.md").exists()
    assert "No kernel was confirmed" in (folder / "trace.md").read_text()
    assert "no faster than the start" in (folder / "trace.md").read_text()
