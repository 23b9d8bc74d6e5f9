"""``trace.md`` and ``report.html``: complete, and safe whatever a kernel or compiler says."""

from __future__ import annotations

import dataclasses
import html.parser
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import Kernel
from kernelgym.testing import verdict
from kernelgym.types import Problem, Verdict
from kernelgym_train.mcgs.drawing import MOST_NODES, graph_drawing
from kernelgym_train.mcgs.graph import SearchGraph
from kernelgym_train.mcgs.report import report, trace
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.variant import MoveStep, read_variant
from support import searches

EVIL = "</td></table><script>alert(1)</script>| `x` \n# Title <b onload='x'>\"&amp;"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "thead", "tbody"),
    *("tr", "th", "td", "svg", "line", "circle", "path", "text", "rect", "pre"),
}


class Page(html.parser.HTMLParser):
    """Collects a page's tags, and checks that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    if "-march=native" in kernel.source or "omp" in kernel.source:
        return verdict("wrong", message=EVIL, log=EVIL)
    return searches.judged(problem, kernel)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outdir = tmp_path_factory.mktemp("search")
    searches.run(outdir, searches.evaluator(judged), 20, algo="mcgs")
    return outdir / "kernels" / "matmul"


def test_report_escapes_what_others_wrote(folder: Path) -> None:
    page = Page((folder / "report.html").read_text())
    assert page.seen <= TAGS and not {name for name in page.attributes if name.startswith("on")}
    assert EVIL.replace("\n", "\n") in page.text


def test_report_needs_no_other_file(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert not {"src", "href", "srcset", "style"} & Page(text).attributes
    assert "@import" not in text and "url(" not in text


def test_report_shows_every_evaluation(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    judged = [row for row in searches.rows(folder.parents[1]) if row["event"] == "judged"]
    assert len(judged) == 20
    failed = sum(row["value"] is None for row in judged)
    assert text.count('stroke="#cf222e" fill="none"') == failed > 0
    assert text.count('r="3"') == 20 - failed
    for name in ("Gain by evaluation", "Graph", "Failures", "Time", "Moves", "Comparisons"):
        assert f"<h2>{name}</h2>" in text


def test_trace_has_a_row_an_evaluation(folder: Path) -> None:
    lines = (folder / "trace.md").read_text().splitlines()
    lines = [lines[0], *lines[lines.index("## Evaluations") :]]
    starts = [at for at, line in enumerate(lines) if line.startswith("|---")]
    tables = [list(itertools.takewhile(str.strip, lines[at + 1 :])) for at in starts]
    events = searches.rows(folder.parents[1])
    failed = sum(row["event"] == "judged" and row["value"] is None for row in events)
    duels = sum(bool(row.get("rounds")) for row in events)
    assert list(map(len, tables)) == [20, failed, duels]
    headings = {"## Evaluations", "## Failures", "## Comparisons"}
    assert {line for line in lines if line.startswith("#")} == {lines[0], *headings}


def test_failure_leaves_its_log_beside_it(folder: Path) -> None:
    found = [path for path in folder.glob("variants/*/log.txt")]
    assert found and all(path.read_text() == EVIL for path in found)
    for path in found:
        assert json.loads((path.parent / "result.json").read_text())["status"] == "wrong"


@given(st.text(), st.text())
def test_trace_cells_stay_cells(message: str, choice: str) -> None:
    start = read_variant(searches.TASK.start)
    state = searches.empty_state(start)
    state.variants["k"] = dataclasses.replace(start, applied=(MoveStep("m", "t", choice),))
    state.risks["k"] = "exact"
    failed = SearchTrial("k", state.start, "m", None, charged=True, status="wrong", message=message)
    state.history.append(failed)
    text = trace(state, "title", state.start)
    for line in text.split("\n"):
        if line.startswith("|"):
            plain = line.replace("\\\\", "").replace("\\|", "")
            assert plain.count("|") in (5, 6)


def test_empty_search_has_a_report() -> None:
    result = {
        "task": "t", "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0,
        "over_reference": {"speedup": 0.0},
        "correct_means": "agrees with the reference",
        "evaluations": 0, "duplicates": 0, "pruned": 0,
        "seconds": 0.0, "stopped": "interrupted", "noise": 0.0, "risk": "exact",
        "without_approximate": None, "host_busy": False, "busy_share": 0.0,
        "context": {}, "best": {"state": "s"},
    }  # fmt: skip
    state = searches.empty_state(read_variant(searches.TASK.start))
    page = Page(report(state, result, "nothing", ""))
    assert "not measured" in page.text


def test_drawing_of_a_large_graph_shows_the_best() -> None:
    graph = SearchGraph("start")
    keys = ["start"]
    for number in range(300):
        key = f"n{number}"
        graph.dispatch([], keys[number // 3], "m", number, key)
        graph.settle(key, number / 100)
        keys.append(key)
    drawing = graph_drawing(graph, str, "n299")
    shown = len(drawing.dots)
    assert shown <= MOST_NODES + 12
    assert f"{301 - shown} slower states left out" in [text for *_, text in drawing.texts]
    assert any(text.endswith("n299") for *_, text in drawing.dots)
