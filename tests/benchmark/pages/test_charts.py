"""Charts of a report: that all they draw lies inside their frame, whatever the numbers."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.rates import CurvePoint
from kernelgym.benchmark.pages.charts import (
    ScatterDot,
    fast_curves,
    histogram,
    scatter,
    stack,
)
from support.html_pages import parsed

POSITIVE = st.floats(1e-6, 1e6)


def inside(chart: str) -> None:
    for points in re.findall(r'points="([^"]*)"', chart):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 640 and 0 <= y <= 300


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=9), st.text())
def test_curves_stay_inside_and_carry_their_numbers(
    shares: list[tuple[float, float]], name: str
) -> None:
    curve = [CurvePoint(n / 2, max(pair), min(pair)) for n, pair in enumerate(shares, 1)]
    chart = fast_curves({name: curve, "empty": []})
    inside(chart)
    (data,) = [found["data-curves"] for _, found in parsed(chart).tags if "data-curves" in found]
    told = json.loads(data)
    assert len(told["x"]) == len(told["p"]) == len(curve) and len(told["series"]) == 2
    assert told["series"][0]["values"] == [round(each.point, 4) for each in curve]


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=12), st.booleans())
def test_dots_stay_inside(places: list[tuple[float, float]], diagonal: bool) -> None:
    dots = [ScatterDot(x, y, "<b>", link="#a") for x, y in places]
    chart = scatter(dots, x_name="x", y_name="y", diagonal=diagonal, marks=(1.0,))
    page = parsed(chart)
    drawn = [found for name, found in page.tags if name == "circle"]
    assert len(drawn) == len(dots)
    for found in drawn:
        assert 0 <= float(found["cx"]) <= 640 and 0 <= float(found["cy"]) <= 300


def test_what_has_no_logarithm_is_not_drawn() -> None:
    assert scatter([ScatterDot(0.0, 1.0, "a")], x_name="x", y_name="y") == ""


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=64))
def test_histogram_counts_every_value(values: list[float]) -> None:
    chart = histogram(values, name="ratio")
    counts = [int(n) for n in re.findall(r"<title>(\d+) at ", chart)]
    assert sum(counts) == len(values)
    parsed(chart)


def test_shares_of_a_bar_add_up() -> None:
    chart = stack([("a", 1.0, "red"), ("b", 3.0, "blue"), ("c", 0.0, "green")])
    assert [float(w) for w in re.findall(r"width:([\d.]+)%", chart)] == [25.0, 75.0]
    assert stack([("a", 0.0, "red")]) == histogram([], name="x") == ""
