"""The report: what it says, that it is whole in itself, and that all texts are escaped."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from kernelgym.benchmark.numbers.intervals import RateEstimate
from kernelgym_train.demo.report import headline, html_page, score_rows, text_table
from kernelgym_train.demo.results import Demonstration, Specimen, as_data, curves_of
from kernelgym_train.demo.scores import Scores
from support.html_pages import parsed


def scores(right: float, pass16: float = 0.9) -> Scores:
    rate = RateEstimate(right, right - 0.1, right + 0.1, 160.0)
    return Scores(
        *(10, 160, rate, rate, {1: rate, 16: RateEstimate(pass16, pass16, 1.0, 10.0)}),
        *(
            rate,
            None,
            rate,
            RateEstimate(0.1, 0.05, 0.2, 160.0),
            RateEstimate(1.0, 1.0, 1.0, 160.0),
        ),
        {"right": round(160 * right), "numerics": 160 - round(160 * right)},
        41.0,
    )


def shown(pass16: float = 0.9) -> Demonstration:
    return Demonstration(
        "A <small> model learns",
        7,
        {"model": "Qwen3 & more"},
        {"compositions": scores(0.25, pass16)},
        {"compositions": scores(0.95)},
        {"right at the first turn": [0.2, 0.5, 0.9], "reward": [0.1, 0.4, 1.2]},
        {"warm start": 88.4},
        ("Tokens are phrases.",),
        (Specimen("P<1>", "def f(x): return x < 1", "a & b", "wrong", "</pre>", "correct"),),
    )


def test_the_table_tells_both_sides() -> None:
    rows = {name: (one, two) for name, one, two in score_rows(scores(0.25), scores(0.95))}
    assert rows["right, sampled"] == ("25.0 % (15 to 35)", "95.0 % (85 to 105)")
    assert rows["second turn after a failure"] == ("-", "-"), "nothing was played"
    assert rows["problems, answers"] == ("10, 160", "10, 160")
    text = text_table(shown())
    assert "held out: compositions" in text and "pass@16" in text
    assert max(map(len, text.splitlines())) < 100


def test_the_page_is_whole_and_escaped() -> None:
    page = html_page(shown())
    reader = parsed(page)
    assert "A <small> model learns" in reader.text and "<small>" not in page
    assert "def f(x): return x < 1" in reader.text and "Qwen3 & more" in reader.text
    assert not re.search(r"(?:src|href)=|<script|@import|url\(", page)
    assert page.count("<svg") == 3, "two charts of curves and one of failures"
    assert "88 s" in reader.text and "Tokens are phrases." in reader.text


@pytest.mark.parametrize(("pass16", "sharpening"), [(0.9, True), (0.4, False)])
def test_sharpening_is_called_so(pass16: float, sharpening: bool) -> None:
    told = parsed(html_page(shown(pass16))).text
    assert ("sharpening" in told) is sharpening
    assert "pretrained" in told


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [(0.25, 0.95, "rose from 25.0 % to 95.0 %"), (0.95, 0.25, "fell from"), (0.25, 0.3, "chance")],
)
def test_headline_says_what_happened(before: float, after: float, says: str) -> None:
    tables = {"before": {"shapes": scores(before)}, "after": {"shapes": scores(after)}}
    page = dataclasses.replace(shown(), **tables)
    assert says in headline(page) and headline(page).count(".") <= 3
    assert text_table(page).startswith("In 3 steps, right")


def test_page_begins_with_sentence_figure_and_sample() -> None:
    page = html_page(shown())
    places = [page.index(text) for text in ("In 3 steps", "<svg", "before: wrong", "<table")]
    assert places == sorted(places)


def test_table_without_a_right_answer_is_a_line() -> None:
    none = dataclasses.replace(
        scores(0.0, 0.0), sampled=RateEstimate(0.0, 0.0, 0.0, 160.0), greedy=None
    )
    none = dataclasses.replace(none, within=None, pass_at={})
    tables = {"before": {"unseen": none}, "after": {"unseen": none}}
    page = dataclasses.replace(shown(), **tables)
    line = "held out: unseen: no answer was right, before or after (10 problems, 160 answers)"
    assert line in text_table(page).splitlines() and line in parsed(html_page(page)).text
    assert "pass@" not in text_table(page)


def test_results_are_plain_data() -> None:
    found = json.loads(json.dumps(as_data(shown())))
    assert found["before"]["compositions"]["sampled"]["value"] == 0.25
    assert found["before"]["compositions"]["retry"] is None
    assert as_data({"x": (float("nan"), 1)}) == {"x": [None, 1]}


def test_curves_are_a_run_s_metrics(tmp_path: Path) -> None:
    assert curves_of(tmp_path) == {}
    rows = [
        {"step": 0, "turn_1/correct_rate": 0.25, "train/entropy": None},
        {"step": 1, "turn_1/correct_rate": None, "train/entropy": 0.5},
        {"step": 2, "turn_1/correct_rate": 0.75, "train/entropy": 0.25},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = curves_of(tmp_path)
    assert found["right at the first turn"] == [0.25, 0.25, 0.75]
    assert found["entropy, nats per token"] == [0.5, 0.25]
