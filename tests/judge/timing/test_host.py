"""Which windows waited for other programs, and what a candidate could gain from the rule."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge.processes.threads import RunTimes, Threads
from kernelgym.judge.timing import host, speedup
from kernelgym.judge.timing.speedup import WindowPair
from kernelgym.types import Severity
from kernelgym.verdict import HOST_BUSY

MS = 1_000_000
NONE = RunTimes(0, {})
SPREAD = 0.05


def times(*threads: tuple[float, float], ended: float = 0.0) -> RunTimes:
    """Return counts of threads that (ran, waited) so many ms; others ran and have ended."""
    by_thread = {str(n): (int(ran * MS), int(w * MS)) for n, (ran, w) in enumerate(threads)}
    return RunTimes(int((ended + sum(ran for ran, _ in threads)) * MS), by_thread)


def share(*threads: tuple[float, float], window_ms: float = 10.0, **options: object) -> float:
    ended = float(options.pop("ended", 0.0))  # type: ignore[arg-type]
    trusted = bool(options.pop("trusted", False))
    found = host.waited_share(NONE, times(*threads, ended=ended), window_ms, trusted)
    assert found is not None
    return found


def test_wait_of_a_single_thread_counts_in_full() -> None:
    assert share((4.0, 6.0)) == pytest.approx(0.6)
    before = times((100.0, 50.0))
    after = times((104.0, 56.0))
    assert host.waited_share(before, after, 10.0, trusted=False) == pytest.approx(0.6)


def test_wait_of_an_empty_window_does_not_count() -> None:
    woken = times((0.7, 0.06))
    assert host.waited_share(NONE, woken, 0.8, trusted=False) == pytest.approx(0.075)
    assert host.waited_share(NONE, woken, 0.8, trusted=False, empty_ms=0.05) == pytest.approx(
        0.0125
    )
    assert host.waited_share(NONE, woken, 0.8, trusted=True, empty_ms=0.1) == 0.0


def test_sleeping_is_no_waiting() -> None:
    assert share((1.0, 0.0), window_ms=100.0) == 0.0


def test_wait_for_own_threads_does_not_count() -> None:
    assert share((5.0, 5.0), (5.0, 5.0)) == 0.0
    assert share((5.0, 5.0), (5.0, 5.0), trusted=True) == pytest.approx(0.5)
    assert share((5.0, 5.0), ended=5.0) == 0.0  # the other thread ended within the window
    assert share((2.0, 8.0), (2.0, 0.0)) == pytest.approx(0.6)


def test_window_without_counts_is_unknown() -> None:
    assert host.waited_share(None, NONE, 10.0, trusted=True) is None
    assert host.waited_share(NONE, None, 10.0, trusted=True) is None


@settings(max_examples=40)
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(1, 12))
def test_threads_on_an_idle_host_never_wait_for_others(
    data: st.DataObject, threads: int, processors: int, ticks: int
) -> None:
    """However a candidate pins, wakes and ends its threads: one of them runs while one waits."""
    ran, waited, ended = [0] * threads, [0] * threads, set[int]()
    for _ in range(ticks):
        alive = [thread for thread in range(threads) if thread not in ended]
        ready = data.draw(st.lists(st.sampled_from(alive), unique=True)) if alive else []
        busy = data.draw(st.integers(1, processors))  # processors that its threads are pinned to
        for place, thread in enumerate(ready):
            ran[thread] += place < busy
            waited[thread] += place >= busy
        ended |= set(data.draw(st.lists(st.sampled_from(ready), max_size=1))) if ready else set()
    left = {str(n): (ran[n] * MS, waited[n] * MS) for n in range(threads) if n not in ended}
    after = RunTimes(sum(ran) * MS, left)
    assert host.waited_share(NONE, after, float(ticks), trusted=False) == 0.0


def pair(ratio: float, waited: float | None = 0.0) -> WindowPair:
    return WindowPair(ratio, 1.0, ratio, 1.0, waited_share=waited)


def low_of(pairs: list[WindowPair]) -> float:
    return host.timing_of(host.sift(pairs), SPREAD).speedup_low


ratios = st.floats(0.1, 10.0)
judged = st.lists(st.builds(pair, ratios, st.sampled_from((0.0, 0.03, 0.3))), min_size=1)
timeable = judged.filter(lambda pairs: host.sift(pairs).tells_time)


@given(judged)
def test_pairs_that_waited_are_discarded_and_counted(pairs: list[WindowPair]) -> None:
    sifted = host.sift(pairs)
    assert len(sifted.taken) == len(pairs) == len(sifted.kept) + sifted.waited
    assert not any(host.has_waited(each.waited_share) for each in sifted.kept)
    assert (sifted.host == "busy") == (3 * sifted.waited > len(pairs))
    assert (host.finding(sifted) is None) == (sifted.host == "quiet")
    assert sifted.host == "busy" or sifted.tells_time


def test_busy_host_without_quiet_pairs_tells_no_time() -> None:
    least = host.LEAST_QUIET_PAIRS
    few = host.sift([pair(1.0)] * (least - 1) + [pair(0.1, 0.5)] * 20)
    assert few.host == "busy" and not few.tells_time
    told = host.finding(few)
    assert told is not None and "no time can be told" in told.message
    some = host.sift([pair(1.0)] * least + [pair(0.1, 0.5)] * 20)
    assert some.host == "busy" and some.tells_time
    timing = host.timing_of(some, SPREAD)
    assert timing.speedup == 1.0 and timing.samples == least
    assert timing.speedup_low <= 0.1, "pairs that waited still bound the interval"


@given(timeable)
def test_discarding_windows_never_raises_the_low_end(pairs: list[WindowPair]) -> None:
    """So a candidate that had its slow windows discarded would be paid no more for it."""
    everything = speedup.summarise([(p.reference_ms, p.kernel_ms) for p in pairs], SPREAD)
    timing = host.timing_of(host.sift(pairs), SPREAD)
    assert timing.speedup_low <= everything.speedup_low * (1 + 1e-12)
    assert timing.speedup_high >= everything.speedup_high * (1 - 1e-12)


def test_discarding_own_slow_windows_gains_nothing() -> None:
    honest = [pair(1.0 if number % 3 else 0.5) for number in range(30)]
    chosen = [pair(p.reference_ms, 0.5 if p.reference_ms < 1.0 else 0.0) for p in honest]
    assert host.sift(chosen).host == "quiet" and len(host.sift(chosen).kept) == 20
    assert low_of(chosen) == low_of(honest)
    more = [pair(1.0 if number % 2 else 0.5, 0.5 * (not number % 2)) for number in range(30)]
    assert host.sift(more).host == "busy" and low_of(more) < 0.5


@given(st.lists(ratios, min_size=1), st.sampled_from((None, 0.9)))
def test_interval_of_a_busy_host_holds_every_pair(found: list[float], waited: float | None) -> None:
    quiet = [] if waited is None else [pair(1.0)] * host.LEAST_QUIET_PAIRS
    pairs = quiet + [pair(ratio, waited) for ratio in found * 2]
    sifted = host.sift(pairs)
    timing = host.timing_of(sifted, SPREAD)
    for each in pairs:
        assert timing.speedup_low <= each.reference_ms * (1 + 1e-9)
        assert timing.speedup_high >= each.reference_ms * (1 - 1e-9)
    told = host.finding(sifted)
    if waited is None:
        assert told is not None
        assert (told.code, told.severity) == ("host_unknown", Severity.INFO)
        assert timing.samples == len(pairs)
    elif len(found) > 1:
        assert told is not None
        assert (told.code, told.severity) == (HOST_BUSY, Severity.SOFT)
        assert f"{2 * len(found)} of {len(pairs)} pairs" in told.message
        assert timing.speedup == 1.0 and timing.samples == len(quiet)


def test_times_of_ended_threads_stay_in_the_process() -> None:
    watched = Threads(os.getpid())
    try:
        before = watched.run_times()
        if before is None:
            pytest.skip("this system keeps no schedstat")
        spent: list[int] = []

        def work() -> None:
            math.factorial(20_000)
            spent.append(time.thread_time_ns())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        after = watched.run_times()
        assert after is not None and after.ran_ns - before.ran_ns >= spent[0]
        assert str(threading.get_native_id()) in after.by_thread
        assert all(after.by_thread[each] >= before.by_thread[each] for each in after.by_thread
                   if each in before.by_thread)  # fmt: skip
    finally:
        watched.close()
    gone = Threads(os.getpid())
    gone._folder = "/proc/self/none"
    assert gone.run_times() is None
    gone.close()


class FakeHost:
    """Two processors whose idle time and own use grow by set shares of the wall time."""

    def __init__(self, idle: float, own: float, processors: int = 2) -> None:
        self.wall_s, self.idle, self.own, self.processors = 100.0, idle, own, processors

    def load(self) -> host.HostLoad:
        return host.HostLoad(
            lambda: 3.0 + self.own * self.wall_s,
            lambda: 7.0 + self.idle * self.wall_s,
            lambda: self.wall_s,
            self.processors,
        )


@given(
    idle=st.floats(0.0, 4.0),
    own=st.floats(0.0, 4.0),
    others=st.floats(0.0, 4.0),
    wall_s=st.floats(0.35, 100.0),
)
def test_load_is_what_is_neither_idle_nor_own(
    idle: float, own: float, others: float, wall_s: float
) -> None:
    processors = math.ceil(idle + own + others) or 1
    known = FakeHost(processors - own - others, own, processors)
    load = known.load()
    known.wall_s += wall_s
    assert load.others() == pytest.approx(others, abs=1e-6)


def test_load_is_unknown_at_first_or_where_times_are_hidden() -> None:
    known = FakeHost(2.0, 0.0)
    load = known.load()
    known.wall_s += 0.1
    assert load.others() is None and load.is_early() and not load.left_alone()
    known.wall_s += 0.4
    assert load.left_alone() and not load.is_early()
    for hidden in ({"own_s": lambda: None}, {"idle_s": lambda: None}):
        given_times = {"own_s": lambda: 0.0, "idle_s": lambda: 0.0} | hidden
        seconds = itertools.count(1.0, 8.0)
        load = host.HostLoad(now=seconds.__next__, processors=2, **given_times)
        assert load.others() is None and not load.left_alone() and not load.is_early()


def test_load_of_a_spinning_program_is_seen() -> None:
    script = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", script]) as spinning:
        try:
            load = host.HostLoad(time.process_time)
            time.sleep(0.5)
            others = load.others()
        finally:
            spinning.kill()
    assert others is not None and others > 0.15 and not load.left_alone()


def test_pairs_that_waited_for_own_threads_all_count() -> None:
    pairs = [pair(1.0)] * 4 + [pair(0.1, 0.5)] * 6
    busy, quiet = host.sift(pairs), host.sift(pairs, lambda: True)
    assert busy.host == "busy" and len(busy.kept) == 4
    assert quiet.host == "quiet" and quiet.kept == quiet.taken == tuple(pairs)
    assert host.finding(quiet) is None
    timing = host.timing_of(quiet, SPREAD)
    assert timing.speedup == pytest.approx(0.1)
    assert timing.speedup_low <= 0.1 and timing.speedup_high >= 1.0


def test_interval_spares_rare_outliers_of_pairs_that_waited_for_own_threads() -> None:
    pairs = [pair(1.0, 0.5)] * 30 + [pair(1.5, 0.5)] * 8 + [pair(20.0, 0.5)] * 2
    timing = host.timing_of(host.sift(pairs, lambda: True), SPREAD)
    assert 1.5 <= timing.speedup_high < 5.0
