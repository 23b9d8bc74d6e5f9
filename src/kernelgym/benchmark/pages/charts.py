"""Charts of a report: fast_p curves, scatters, histograms, stacked shares.

Contract: pure; texts are escaped, and colours come from the page's style sheet. The values of a
chart are also in a table or a title, so that it can be read without colours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelgym.benchmark.numbers.rates import CurvePoint
from kernelgym.benchmark.pages.drawing import legend
from kernelgym.benchmark.pages.text import escaped

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 40
_MOST_DOTS = 4000
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class ScatterDot:
    """One point of a scatter."""

    x: float
    y: float
    name: str
    colour: int = 0
    link: str = ""


class _Frame:
    """Mapping from values to places in the drawing, on logarithmic or linear axes."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], log: tuple[bool, bool]):
        self._x, self._y, self._log = x, y, log

    def x(self, value: float) -> float:
        share = _share(value, *self._x, self._log[0])
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    def y(self, value: float) -> float:
        share = _share(value, *self._y, self._log[1])
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1.0 - share)

    def grid(
        self, across: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]], name: str
    ) -> str:
        """Return grid lines with labels, and the name of the axis below."""
        parts = []
        for value, told in up:
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" '
                f'y2="{y:.1f}"/><text class="tick" text-anchor="end" x="{_LEFT - 6}" '
                f'y="{y + 4:.1f}">{escaped(told)}</text>'
            )
        for value, told in across:
            x = self.x(value)
            parts.append(
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" '
                f'y2="{_HEIGHT - _BOTTOM}"/><text class="tick" text-anchor="middle" x="{x:.1f}" '
                f'y="{_HEIGHT - _BOTTOM + 15}">{escaped(told)}</text>'
            )
        parts.append(
            f'<text class="label" text-anchor="middle" x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" '
            f'y="{_HEIGHT - 6}">{escaped(name)}</text>'
        )
        return "".join(parts)


def fast_curves(series: Mapping[str, Sequence[CurvePoint]]) -> str:
    """Return a chart of fast_p over p, with a band down to certain fast_p.

    Args:
        series: Curves by name, all at the same places, each above 0.
    """
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    places = [point.p for point in next(iter(series.values()))]
    frame = _Frame((places[0], places[-1]), (0.0, 1.0), (True, False))
    ticks = [(t, f"{t:g}") for t in _TICKS if places[0] <= t <= places[-1]]
    parts = [
        frame.grid(ticks, [(n / 4, f"{25 * n} %") for n in range(5)], "p: speedup to exceed"),
        f'<line class="mark" x1="{frame.x(1):.1f}" x2="{frame.x(1):.1f}" y1="{_TOP}" '
        f'y2="{_HEIGHT - _BOTTOM}"/>',
    ]
    for number, (name, points) in enumerate(series.items()):
        upper = [f"{frame.x(each.p):.1f},{frame.y(each.point):.1f}" for each in points]
        lower = [f"{frame.x(each.p):.1f},{frame.y(each.certain):.1f}" for each in points]
        colour = number % 6
        parts.append(
            f'<polygon class="band c{colour}" points="{" ".join(upper + lower[::-1])}"/>'
            f'<polyline class="line certain c{colour}" points="{" ".join(lower)}"/>'
            f'<polyline class="line c{colour}" points="{" ".join(upper)}">'
            f"<title>{escaped(name)}</title></polyline>"
        )
    told = {
        "x": [round(frame.x(p), 1) for p in places],
        "p": [float(f"{p:.3g}") for p in places],
        "series": [
            {"name": f"{name}{what}", "values": [round(getattr(each, kind), 4) for each in points]}
            for name, points in series.items()
            for what, kind in (("", "point"), (" (certain)", "certain"))
        ],
    }
    return (
        f'<figure data-curves="{escaped(json.dumps(told), 10**9)}">'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="fast_p curves">'
        f'{"".join(parts)}</svg><p class="reading quiet">Solid: the measured speedup. Dashed: the '
        f"lower end of its 95 % interval.</p>{legend(list(series))}</figure>"
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
    frame = _Frame(across, up, (True, True))
    parts = [
        frame.grid(
            [(t, f"{t:g}") for t in _TICKS if across[0] <= t <= across[1]],
            [(t, f"{t:g}") for t in _TICKS if up[0] <= t <= up[1]],
            x_name,
        )
    ]
    for mark in marks:
        parts.append(
            f'<line class="mark" x1="{frame.x(mark):.1f}" x2="{frame.x(mark):.1f}" y1="{_TOP}" '
            f'y2="{_HEIGHT - _BOTTOM}"/>'
        )
    if diagonal:
        parts.append(
            f'<line class="mark" x1="{frame.x(across[0]):.1f}" y1="{frame.y(across[0]):.1f}" '
            f'x2="{frame.x(across[1]):.1f}" y2="{frame.y(across[1]):.1f}"/>'
        )
    for dot in kept:
        point = (
            f'<circle class="dot c{dot.colour % 6}" cx="{frame.x(dot.x):.1f}" '
            f'cy="{frame.y(dot.y):.1f}" r="3.5"><title>{escaped(dot.name, 300)}</title></circle>'
        )
        parts.append(f'<a href="{escaped(dot.link)}">{point}</a>' if dot.link else point)
    left = f"<p class='quiet'>{len(dots) - len(kept)} points are not drawn.</p>"
    return (
        f'<figure><p class="quiet">{escaped(y_name)} (up), {escaped(x_name)} (across); both axes '
        f'are logarithmic.</p><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escaped(y_name)} against {escaped(x_name)}">{"".join(parts)}</svg>'
        f"{legend(names) if names else ''}{left if len(dots) > len(kept) else ''}</figure>"
    )


def histogram(values: Sequence[float], *, name: str, bins: int = 16) -> str:
    """Return a histogram; empty without values.

    Args:
        values: Finite numbers.
        name: Name of the values.
        bins: Number of bars.
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    width = (high - low) / bins or max(abs(low), 1.0) / bins
    heights = [0] * bins
    for value in values:
        heights[min(bins - 1, int((value - low) / width))] += 1
    size, tall, wide = 100 / bins, 60, 320
    bars = "".join(
        f'<rect class="bar c1" x="{wide * place * size / 100:.1f}" '
        f'y="{tall - tall * count / max(heights):.1f}" width="{wide * size / 100 - 1:.1f}" '
        f'height="{tall * count / max(heights):.1f}"><title>{count} at '
        f"{low + place * width:.4g}</title></rect>"
        for place, count in enumerate(heights)
    )
    return (
        f'<figure class="small"><svg viewBox="0 0 {wide} {tall + 16}" role="img" '
        f'aria-label="{escaped(name)}">{bars}<text class="tick" x="0" y="{tall + 13}">'
        f'{low:.4g}</text><text class="tick" text-anchor="end" x="{wide}" y="{tall + 13}">'
        f"{high:.4g}</text></svg><figcaption class='quiet'>{escaped(name)}, {len(values)} "
        "values</figcaption></figure>"
    )


def stack(shares: Sequence[tuple[str, float, str]]) -> str:
    """Return one bar that is divided by shares of a whole.

    Args:
        shares: Name, value and CSS colour of each.
    """
    whole = math.fsum(value for _, value, _ in shares)
    if whole <= 0.0:
        return ""
    parts = "".join(
        f'<i style="width:{100 * value / whole:.2f}%;background:{colour}" '
        f'title="{escaped(name)}: {value:g}"></i>'
        for name, value, colour in shares
        if value > 0.0
    )
    return f'<div class="stack">{parts}</div>'


def _share(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = (math.log(max(each, 1e-12)) for each in (value, low, high))
    share = (value - low) / (high - low) if high > low else 0.5
    return min(1.0, max(0.0, share))


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return a span that holds the values and 1."""
    return min(*values, 0.8) / 1.15, max(*values, 1.25) * 1.15
