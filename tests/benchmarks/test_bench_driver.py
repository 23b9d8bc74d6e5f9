"""The benchmark of the driver plays what it says; figures are for quiet machines."""

from __future__ import annotations

from benchmarks.env import bench_driver


def test_parts_play_what_they_say() -> None:
    assert bench_driver.turns_a_second(20)["turns"] == 80
    grown = bench_driver.memory_growth(100)
    assert grown["episodes"] == 100 and grown["most_bytes"] > 0


def test_both_sides_are_slow_in_the_overlap() -> None:
    done, seconds = bench_driver.play(4, 2, 1, takes_s=0.05, per_s=50.0, concurrency=4)
    assert done.answers == done.judged == 8
    assert seconds > 8 / 50.0
