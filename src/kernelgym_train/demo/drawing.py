"""Charts as plain SVG: lines over steps, and pairs of bars.

Contract: pure; the same data gives the same text. Colours come from the page's style sheet, so a
chart is readable on light and dark paper; texts are escaped. Nothing is loaded from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["bars", "lines"]

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 34
_BAR, _LABELS = 13, 210


def lines(
    series: Mapping[str, Sequence[float]], *, top: float | None = None, percent: bool = False
) -> str:
    """Return lines over steps.

    Args:
        series: Values by name, one for each step.
        top: Upper end of the axis; the largest value if None.
        percent: Write the axis in per cent.
    """
    drawn = {name: values for name, values in series.items() if values}
    if not drawn:
        return ""
    steps = max(len(values) for values in drawn.values())
    highest = max(max(values) for values in drawn.values())
    end = top if top is not None else highest * 1.05 or 1.0
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(place: int) -> float:
        return _LEFT + wide * place / max(1, steps - 1)

    def y(value: float) -> float:
        return _TOP + high * (1.0 - min(max(value, 0.0), end) / end)

    parts = []
    for tick in range(5):
        value = end * tick / 4
        told = f"{100 * value:.0f} %" if percent else f"{value:.3g}"
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/><text class="tick" text-anchor="end" x="{_LEFT - 6}" '
            f'y="{y(value) + 4:.1f}">{told}</text>'
        )
    for place in sorted({0, (steps - 1) // 2, steps - 1}):
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{x(place):.1f}" '
            f'y="{_HEIGHT - 14}">step {place + 1}</text>'
        )
    for number, (name, values) in enumerate(drawn.items()):
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(values))
        parts.append(
            f'<polyline class="line c{number % 6}" points="{points}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    chart = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f"<figure>{chart}{_legend(list(drawn))}</figure>"


def bars(pairs: Mapping[str, tuple[float, float]], names: tuple[str, str]) -> str:
    """Return two horizontal bars for each name, as shares written in per cent.

    Args:
        pairs: Two shares by name, each in 0..1.
        names: What the two are.
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
    return f"<figure>{chart}{_legend(names)}</figure>"


def _legend(names: Sequence[str]) -> str:
    keys = (
        f'<span><i class="key c{number % 6}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f"<figcaption>{' '.join(keys)}</figcaption>"
