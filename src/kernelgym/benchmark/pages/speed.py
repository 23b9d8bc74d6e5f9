"""Data of the page on speed: fast_p curves, speedup over bandwidth, compiled baselines.

Contract: pure. In the chart of bandwidths, a kernel to the right of the line at 1 moved fewer bytes
than its inputs and outputs have, or its time is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from kernelgym.benchmark.numbers.outcomes import winner
from kernelgym.benchmark.numbers.rates import CurvePoint, fast_curve
from kernelgym.benchmark.numbers.roofline import limit_ms, roofline_share, sol_score
from kernelgym.benchmark.numbers.speeds import UnpairedSpeedup, unpaired_speedup
from kernelgym.benchmark.pages.charts import ScatterDot, fast_curves, scatter
from kernelgym.benchmark.pages.text import problem_link
from kernelgym.benchmark.pages.view import RunView
from kernelgym.benchmark.recorded_runs import PlayedEpisode
from kernelgym.types import Verdict

PLACES = tuple(round(2.0 ** (n / 12 - 3), 4) for n in range(85))
"""Values of p at which curves are drawn: 1/8 to 16, twelve for each factor of 2."""
_MOST_ROWS = 40


def fast_p_curves(views: Sequence[RunView]) -> Iterator[tuple[str, str]]:
    """Yield the names and charts of fast_p over p: for first answers, then for best turns."""
    for within in (False, True) if any(view.turns > 1 for view in views) else (False,):
        series = {view.name: fast_curve(view.run.outcomes, PLACES, within=within) for view in views}
        if drawn := _curves(series):
            yield "best turn of the episode" if within else "first answer", drawn


def compiled_curves(views: Sequence[RunView]) -> str:
    """Return the chart of fast_p over the fastest mode of the baseline files."""
    return _curves({view.name: _compiled_curve(view) for view in views if view.baselines})


def bandwidth_chart(views: Sequence[RunView], link: Callable[[str], str]) -> str:
    """Return the chart of speedups over the share of the memory's bandwidth."""
    return scatter(
        [dot for view in views for dot in _floor_dots(view, link)],
        x_name="share of the measured bandwidth",
        y_name="speedup",
        marks=(1.0,),
        names=[view.name for view in views],
    )


def _curves(series: Mapping[str, Sequence[CurvePoint]]) -> str:
    fast = {n: points for n, points in series.items() if any(each.point > 0.0 for each in points)}
    return fast_curves(fast)


def _two_digits(number: float | None) -> str:
    return "-" if number is None or math.isnan(number) else f"{number:.2f}"


def _best(played: PlayedEpisode) -> Verdict | None:
    if played.second is not None and played.second.valid:
        return played.second
    return winner(played.turns).verdict if played.turns else None


def _floor_dots(view: RunView, link: Callable[[str], str]) -> Iterator[ScatterDot]:
    for played in view.episodes:
        verdict = _best(played)
        if verdict is None or verdict.timing is None or not verdict.timing.floor_share:
            continue
        share = verdict.timing.floor_share
        name = f"{played.key[0]} sample {played.sample}: {verdict.speedup:.3g}x, {share:.2f}"
        yield ScatterDot(share, verdict.speedup, name, view.number, link(played.key[0]))


def _compiled(view: RunView, played: PlayedEpisode) -> UnpairedSpeedup | None:
    verdict = _best(played)
    if verdict is None or verdict.timing is None:
        return None
    return unpaired_speedup(verdict.timing, view.baselines.get(played.key[0], ()))


def _compiled_curve(view: RunView) -> list[CurvePoint]:
    """Return fast_p over the fastest baseline, for problems that have one."""
    some = [played for played in view.episodes if played.key[0] in view.baselines]
    judged = [(played, best) for played in some if (best := _best(played)) and best.valid]
    found = [_compiled(view, played) for played, best in judged if best.correct]
    if not judged:
        return []
    return [
        CurvePoint(
            p,
            sum(each is not None and each.speedup > p for each in found) / len(judged),
            sum(each is not None and each.low > p for each in found) / len(judged),
        )
        for p in PLACES
    ]


def fastest(view: RunView, link: Callable[[str], str]) -> tuple[list[str], list[list[object]], str]:
    """Return columns, rows and caption of the table of a run's fastest kernels."""
    timed = [(p, v) for p in view.episodes if (v := _best(p)) is not None and v.timing is not None]
    timed.sort(key=lambda pair: -pair[1].speedup)
    rows: list[list[object]] = []
    for played, verdict in timed[:_MOST_ROWS]:
        timing = verdict.timing
        assert timing is not None
        high = f"{timing.speedup_high:.3g}" if timing.speedup_high else "?"
        over = _compiled(view, played)
        limit = view.limits.get(played.key[0])
        share, least = roofline_share(timing, limit), limit_ms(timing, limit)
        score = sol_score(timing.kernel_ms, timing.reference_ms, least) if least else None
        rows.append(
            [
                problem_link(link, played.key[0]),
                played.sample,
                f"{timing.speedup:.3g}",
                f"{timing.speedup_low:.3g} to {high}",
                f"{timing.kernel_ms:.4g}",
                f"{timing.reference_ms:.4g}",
                timing.baseline,
                "-" if over is None else f"{over.speedup:.3g} ({over.mode})",
                _two_digits(share),
                *([_two_digits(score)] if view.limits else []),
                "yes" if played.outcome.confirmed else "no",
            ]
        )
    columns = ["problem", "sample", "speedup", "95 % interval", "kernel ms", "reference ms"]
    limited = ["share of the roofline", "SOL score"] if view.limits else ["share of the bandwidth"]
    columns += ["baseline", "over baseline file", *limited, "confirmed"]
    told = f"Fastest kernels: {view.name}" + (
        f" (the first {_MOST_ROWS} of {len(timed)})" if len(timed) > _MOST_ROWS else ""
    )
    return columns, rows, told
