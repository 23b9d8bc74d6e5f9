"""A device is out after losses in a row, back after a probe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.device_health import LOST_IN_A_ROW, DeviceRecord


def lost(times: int, now: float = 0.0) -> DeviceRecord:
    record = DeviceRecord("cuda:1")
    for _ in range(times):
        record.lose("broken", now)
    return record


@given(st.lists(st.sampled_from(["give", "lose", "forgive"]), max_size=40))
def test_device_out_only_after_losses_in_a_row(events: list[str]) -> None:
    record, in_a_row, worst = DeviceRecord("cuda:0"), 0, 0
    for event in events:
        if event == "give":
            record.give()
            in_a_row = 0
        elif event == "lose":
            record.lose("broken", 1.0)
            in_a_row += 1
        else:
            record.forgive()
            in_a_row = max(0, in_a_row - 1)
        worst = max(worst, in_a_row)
    assert record.in_service is (worst < LOST_IN_A_ROW)
    assert record.health().lost == events.count("lose")
    assert record.health().taken_out == (worst >= LOST_IN_A_ROW)


def test_device_that_overran_is_out_at_once() -> None:
    record = DeviceRecord("cuda:0")
    record.lose("no answer", 5.0, overran=True)
    assert not record.in_service and record.needs_probe(5.0)
    assert record.health().reason == "no answer"


def test_passed_probe_takes_a_device_back() -> None:
    record = lost(LOST_IN_A_ROW)
    record.begin_probe(1.0)
    assert not record.needs_probe(1.0), "one probe at a time"
    record.end_probe("", 2.0)
    assert record.in_service and record.health().reason == ""
    record.lose("once more", 3.0)
    assert record.in_service, "the count begins again"


@given(st.integers(1, 12))
def test_failed_probes_are_put_off_longer(times: int) -> None:
    record, now, waits = lost(LOST_IN_A_ROW), 0.0, []
    for _ in range(times):
        record.begin_probe(now)
        record.end_probe("still broken", now)
        assert not record.may_return(now) and record.reason == "still broken"
        wait = next(s for s in range(1, 1000) if record.needs_probe(now + s))
        waits.append(wait)
        now += wait
    assert waits == sorted(waits) and waits[0] == 10 and waits[-1] <= 300


def test_probe_that_hangs_is_not_waited_for() -> None:
    record = lost(LOST_IN_A_ROW)
    assert record.may_return(0.0)
    record.begin_probe(0.0)
    assert record.may_return(119.0) and not record.may_return(121.0)
