"""Charts as plain SVG: lines over steps, and pairs of bars.

Contract: pure; the same data gives the same text. Colours come from the page's style sheet, so a
chart is readable on light and dark paper; texts are escaped. Nothing is loaded from anywhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 34
_BAR, _LABELS = 13, 210
_HALF_LABEL = 24
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


def lines(
    series: Mapping[str, Sequence[float]], *, top: float | None = None, percent: bool = False
) -> str:
    """Return a line chart over steps.

    Args:
        series: Values by name, one for each step.
        top: Upper end of the vertical axis; a round number above all values if None.
        percent: Label the vertical axis in per cent.
    """
    drawn = {name: values for name, values in series.items() if values}
    if not drawn:
        return ""
    steps = max(len(values) for values in drawn.values())
    highest = max(max(values) for values in drawn.values())
    apart = round_step(highest if top is None else top)
    count = 4 if top is not None else max(1, math.ceil(highest / apart - 1e-9))
    end = apart * count
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(place: int) -> float:
        return _LEFT + wide * place / max(1, steps - 1)

    def y(value: float) -> float:
        return _TOP + high * (1.0 - min(max(value, 0.0), end) / end)

    parts = []
    for tick in range(count + 1):
        value = apart * tick
        told = f"{100 * value:.4g} %" if percent else f"{value:.4g}"
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/><text class="tick" text-anchor="end" x="{_LEFT - 6}" '
            f'y="{y(value) + 4:.1f}">{told}</text>'
        )
    every = max(1, round(round_step(0.8 * steps)))
    for step in range(every, steps + 1, every):
        # A label around its tick would be cut off at the edge of the drawing.
        anchor = "end" if x(step - 1) > _WIDTH - _RIGHT - _HALF_LABEL else "middle"
        parts.append(
            f'<text class="tick" text-anchor="{anchor}" x="{x(step - 1):.1f}" '
            f'y="{_HEIGHT - 14}">step {step}</text>'
        )
    for number, (name, values) in enumerate(drawn.items()):
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(values))
        parts.append(
            f'<polyline class="line c{number % 6}" points="{points}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    chart = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f"<figure>{chart}{legend(list(drawn))}</figure>"


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
    if not pairs:
        return ""
    step = 2 * _BAR + 10
    high = step * len(pairs) + 6
    wide = _WIDTH - _LABELS - 60
    end = max(max(pair) for pair in pairs.values()) or 1.0
    parts = []
    for row, (name, pair) in enumerate(pairs.items()):
        y = row * step + 4
        parts.append(
            f'<text class="label" text-anchor="end" x="{_LABELS - 8}" '
            f'y="{y + _BAR + 4}">{escape(name)}</text>'
        )
        for number, value in enumerate(pair):
            size = wide * value / end
            at = y + number * _BAR
            parts.append(
                f'<rect class="bar c{number}" x="{_LABELS}" y="{at}" width="{size:.1f}" '
                f'height="{_BAR - 2}"/><text class="tick" x="{_LABELS + size + 5:.1f}" '
                f'y="{at + _BAR - 3}">{100 * value:.1f} %</text>'
            )
    chart = f'<svg viewBox="0 0 {_WIDTH} {high}" role="img">{"".join(parts)}</svg>'
    return f"<figure>{chart}{legend(names)}</figure>"


def legend(names: Sequence[str]) -> str:
    """Return the legend of a chart: each colour with its name."""
    keys = (
        f'<span><i class="key c{number % 6}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f"<figcaption>{' '.join(keys)}</figcaption>"
