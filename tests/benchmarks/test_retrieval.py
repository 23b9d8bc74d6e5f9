from __future__ import annotations

import pytest

from benchmarks.retrieval import kernelbench, recall, repairs, speed
from benchmarks.retrieval.bm25 import Bm25
from benchmarks.retrieval.renaming import renamed
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym.suites import get_problem

SOURCES = [
    "def f(x):\n    return torch.relu(x)\n",
    '"""Softmax, softmax, softmax."""\ndef g(x):\n    return torch.relu(torch.relu(x))\n',
    "def h(x):\n    return torch.softmax(x, 1)\n",
]


def test_bm25_goes_by_words_and_not_by_docstrings() -> None:
    words = Bm25(SOURCES)
    softmax, relu = words.scores("torch.softmax"), words.scores("torch.relu")
    assert max(range(3), key=softmax.__getitem__) == 2 and relu[1] > relu[0] > relu[2]


def test_repairs_are_found_by_what_was_said() -> None:
    rows = {row["key"]: row for row in repairs.measured()}
    both = rows["feedback, category, kernel"]
    assert both["same3"] >= 0.6 and both["n"] > 300
    assert rows["feedback"]["same1"] > rows["problem"]["same1"] + 0.2
    assert rows["feedback"]["same1"] > rows["kernel"]["same1"]


@pytest.mark.slow
def test_recall_compares_methods_on_the_same_queries() -> None:
    index = synthetic_index("triton", "cpu")
    rows = recall.measured(index, recall.queries(12), {})
    found = {(row["level"], row["method"], row["renamed"]): row for row in rows}
    assert {method for _, method, _ in found} == {*recall.METHODS}
    for level in (1, 2, 3):
        same = [found[level, "operators", again] for again in (False, True)]
        assert same[0]["hit3"] == same[1]["hit3"] > found[level, "random", False]["hit3"]


def test_families_are_counted_without_the_problem(monkeypatch) -> None:
    problems = [get_problem(f"Synthetic/L1/{number}") for number in range(1, 30)]

    class Suite:
        def problems(self, level):
            return problems

    monkeypatch.setattr(kernelbench, "suite", lambda name: Suite())
    rows = kernelbench.leave_one_out({})
    assert {row["method"] for row in rows} == {"BM25", "operators", "random"}
    for row in rows:
        assert row["entries"] == len(problems) - 1
        assert 0.0 <= row["family1"] <= row["family3"] <= 1.0
    best = [row["family3"] for row in rows if row["method"] == "operators"]
    assert min(best) > max(row["family3"] for row in rows if row["method"] == "random")


def test_speed_is_measured_of_both_engines(monkeypatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(speed, "_SIZES", (200,))
    rows = speed.searches(3)
    assert [row["index"] for row in rows] == ["numpy", "faiss"]
    assert all(0.0 <= row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert set(speed.remembered(3)) == {"without_ms", "with_ms", "added_ms"}


def test_renaming_keeps_imports_of_others() -> None:
    source = "import math\nimport torch.nn as nn\nfrom os import path as p\ny = math.pi\n"
    text = renamed(source, 3)
    assert "import math" in text and "from os import path as p" in text and "math.pi" in text
