"""Charts of a report: curves, lines over steps, scatters, histograms, bars, stacked shares.

Contract: pure; the same data gives the same text. Texts are escaped, and colours come from the
page's style sheet. The values of a chart are also in a table or a title, so that it can be read
without colours. ``charts.html`` draws what is chosen and placed here.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from kernelgym.benchmark.numbers.rates import CurvePoint
from kernelgym.benchmark.pages.rendering import environment

_MOST_DOTS = 4000
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_BINS = 16


@dataclass(frozen=True, slots=True)
class ScatterDot:
    """One point of a scatter."""

    x: float
    y: float
    name: str
    colour: int = 0
    link: str = ""


@dataclass(frozen=True)
class _Frame:
    """Mapping from values to places in the drawing, on logarithmic or linear axes."""

    across: tuple[float, float]
    up: tuple[float, float]
    x_log: bool = False
    y_log: bool = False
    width, height = 640, 300
    left, right, top, bottom = 52, 626, 12, 260

    def x(self, value: float) -> float:
        share = _share(value, *self.across, self.x_log)
        return round(self.left + (self.right - self.left) * share, 1)

    def y(self, value: float) -> float:
        share = _share(value, *self.up, self.y_log)
        return round(self.bottom - (self.bottom - self.top) * share, 1)

    def points(self, pairs: Iterable[tuple[float, float]]) -> Markup:
        return Markup(" ".join(f"{self.x(x)},{self.y(y)}" for x, y in pairs))


def fast_curves(series: Mapping[str, Sequence[CurvePoint]]) -> str:
    """Return a chart of fast_p over p, with a band down to certain fast_p.

    Args:
        series: Curves by name, all at the same places, each above 0.
    """
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    places = [point.p for point in next(iter(series.values()))]
    frame = _Frame((places[0], places[-1]), (0.0, 1.0), x_log=True)
    told = {
        "x": [frame.x(p) for p in places],
        "p": [float(f"{p:.3g}") for p in places],
        "series": [
            {"name": f"{name}{what}", "values": [round(getattr(each, kind), 4) for each in points]}
            for name, points in series.items()
            for what, kind in (("", "point"), (" (certain)", "certain"))
        ],
    }
    curves = [
        (
            name,
            [(each.p, each.point) for each in points],
            [(each.p, each.certain) for each in points],
        )
        for name, points in series.items()
    ]
    up = [(n / 4, f"{25 * n} %") for n in range(5)]
    return _drawn(
        "fast_curves", frame, _ticks(frame.across), up, curves, Markup.escape(json.dumps(told))
    )


def scatter(
    dots: Sequence[ScatterDot],
    *,
    x_name: str,
    y_name: str,
    diagonal: bool = False,
    marks: Sequence[float] = (),
    names: Sequence[str] = (),
) -> str:
    """Return a chart of points on two logarithmic axes; empty without points.

    Args:
        dots: The points; both values above 0.
        x_name: Name of the axis below.
        y_name: Name of the axis to the left.
        diagonal: Draw the line on which both are equal, and give both axes the same span.
        marks: Values on the axis below at which a line is drawn.
        names: Meaning of the colours.
    """
    kept = [dot for dot in dots if dot.x > 0.0 and dot.y > 0.0][:_MOST_DOTS]
    if not kept:
        return ""
    across = _span([*(dot.x for dot in kept), *marks])
    up = _span([dot.y for dot in kept])
    if diagonal:
        across = up = (min(across[0], up[0]), max(across[1], up[1]))
    frame, left_out = _Frame(across, up, x_log=True, y_log=True), len(dots) - len(kept)
    axes = (frame, _ticks(across), _ticks(up))
    return _drawn("scatter", *axes, kept, left_out, x_name, y_name, diagonal, marks, names)


def lines(
    series: Mapping[str, Sequence[float]], *, top: float | None = None, percent: bool = False
) -> str:
    """Return a line chart over steps.

    Args:
        series: Values by name, one for each step.
        top: Upper end of the vertical axis; a round number above all values if None.
        percent: Label the vertical axis in per cent.
    """
    drawn = {name: list(enumerate(values, 1)) for name, values in series.items() if values}
    if not drawn:
        return ""
    steps = max(map(len, drawn.values()))
    highest = max(value for values in drawn.values() for _, value in values)
    apart = round_step(highest if top is None else top)
    count = 4 if top is not None else max(1, math.ceil(highest / apart - 1e-9))
    values = [apart * tick for tick in range(count + 1)]
    up = [(value, f"{100 * value:.4g} %" if percent else f"{value:.4g}") for value in values]
    every = max(1, round(round_step(0.8 * steps)))
    across = [(step, f"step {step}") for step in range(every, steps + 1, every)]
    return _drawn("lines", _Frame((1, steps), (0.0, values[-1])), across, up, drawn)


def round_step(span: float) -> float:
    """Return a round distance between ticks, of which about four cover `span`.

    It is 1, 2, 2.5 or 5 times a power of ten; 0.25 where `span` is not above 0.
    """
    if span / 4 < sys.float_info.min:
        return 0.25
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next((factor * power for factor in _ROUND if factor * power * 4 >= span), 10.0 * power)


def bars(pairs: Mapping[str, tuple[float, float]], names: tuple[str, str]) -> str:
    """Return a chart with two horizontal bars for each name, in per cent.

    Args:
        pairs: Two shares by name, each in 0..1.
        names: Names of the two shares.
    """
    return _drawn("bars", pairs, names, max(map(max, pairs.values())) or 1.0) if pairs else ""


def histogram(values: Sequence[float], *, name: str) -> str:
    """Return a histogram as a chart of the report; empty without values.

    Args:
        values: Finite numbers.
        name: Name of the values.
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    high = high if high > low else low + max(abs(low), 1.0)
    heights = [0] * _BINS
    for value in values:
        heights[min(_BINS - 1, int(_BINS * (value - low) / (high - low)))] += 1
    return _drawn("histogram", heights, low, max(values), name)


def stack(shares: Sequence[tuple[str, float, str]]) -> str:
    """Return one bar that is divided by shares of a whole.

    Args:
        shares: Name, value and CSS colour of each.
    """
    whole = math.fsum(value for _, value, _ in shares)
    return _drawn("stack", shares, whole) if whole > 0.0 else ""


@functools.cache
def _macros() -> Any:
    return environment().get_template("charts.html").module


def _drawn(macro: str, *values: Any) -> str:
    return Markup(getattr(_macros(), macro)(*values).strip())


def _ticks(span: tuple[float, float]) -> list[tuple[float, str]]:
    return [(tick, f"{tick:g}") for tick in _TICKS if span[0] <= tick <= span[1]]


def _share(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = (math.log(max(each, 1e-12)) for each in (value, low, high))
    share = (value - low) / (high - low) if high > low else 0.5
    return min(1.0, max(0.0, share))


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis that holds all values and 1."""
    return min(*values, 0.8) / 1.15, max(*values, 1.25) * 1.15
