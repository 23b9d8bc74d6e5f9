"""Charts: that they stay inside their frame, and that lengths are what they say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.pages.charts import bars, lines, round_step
from support.html_pages import parsed


@given(
    st.dictionaries(st.text(max_size=8), st.lists(st.floats(-1e6, 1e6), max_size=6), max_size=4),
    st.booleans(),
)
def test_lines_stay_inside_their_frame(series: dict[str, list[float]], percent: bool) -> None:
    chart = lines(series, percent=percent)
    if not any(series.values()):
        assert not chart
        return
    parsed(chart)
    for points in re.findall(r'points="([^"]*)"', chart):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 40 <= x <= 640 and 0 <= y <= 300


@given(
    st.dictionaries(
        st.text(max_size=8), st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5
    )
)
def test_bars_are_as_long_as_their_shares(pairs: dict[str, tuple[float, float]]) -> None:
    chart = bars(pairs, ("before", "after"))
    parsed(chart)
    widths = [float(w) for w in re.findall(r'<rect[^>]*? width="([\d.]+)"', chart)]
    values = [value for pair in pairs.values() for value in pair]
    assert len(widths) == len(values)
    if max(values) > 1e-3:
        scale = max(widths) / max(values)
        assert all(abs(w - scale * v) < 0.2 for w, v in zip(widths, values, strict=True))


@given(st.floats(1e-9, 1e9))
def test_axis_is_divided_by_a_round_number(span: float) -> None:
    step = round_step(span)
    digits = f"{step:.3g}".replace(".", "").strip("0").partition("e")[0].rstrip("0")
    assert digits in ("1", "2", "25", "5")
    assert 4 * step >= span * (1 - 1e-9) and step <= span


@pytest.mark.parametrize(("steps", "ticks"), [(44, [10, 20, 30, 40]), (2, [1, 2]), (1, [1])])
def test_last_tick_lies_inside_the_drawing(steps: int, ticks: list[int]) -> None:
    chart = lines({"reward": [float(n) for n in range(steps)]})
    labels = re.findall(r'text-anchor="(\w+)" x="([\d.]+)" y="[\d.]+">step (\d+)<', chart)
    assert [int(step) for *_, step in labels] == ticks
    assert all(float(x) + (24 if anchor == "middle" else 0) <= 640 for anchor, x, _ in labels)
