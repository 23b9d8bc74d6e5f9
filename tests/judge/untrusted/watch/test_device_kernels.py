"""How the time of kernels that run side by side is shared."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.watch import device_kernels, records
from kernelgym.judge.untrusted.watch.device_kernels import at_the_same_time

MS = 1_000_000
SPANS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda s: (s[0], s[0] + s[1])),
        max_size=4,
    ),
    max_size=4,
)


def test_kernels_beside_each_other_share_their_time():
    found = at_the_same_time([[(0, 10 * MS)], [(4 * MS, 6 * MS), (12 * MS, 13 * MS)]])
    assert found == {(0,): pytest.approx(8.0), (0, 1): pytest.approx(2.0), (1,): pytest.approx(1.0)}


@given(SPANS)
def test_shared_time_adds_up_to_that_in_which_anything_ran(spans):
    busy = {at for ran in spans for start, end in ran for at in range(start, end)}
    assert sum(at_the_same_time(spans).values()) == pytest.approx(len(busy) * 1e-6)


@given(SPANS)
def test_kernel_runs_no_longer_than_its_launches(spans):
    found = at_the_same_time(spans)
    for place, ran in enumerate(spans):
        own = sum(ms for places, ms in found.items() if place in places)
        assert own <= sum(end - start for start, end in ran) * 1e-6 + 1e-12


def test_graph_is_replayed_and_lists_nothing_where_the_profiler_cannot_start(monkeypatch):
    def busy(*_):
        raise RuntimeError("no profiler")

    monkeypatch.setattr(records, "_enable", busy)
    monkeypatch.setattr(device_kernels, "_synchronize", lambda: None)
    told = []
    lister = device_kernels.DeviceKernels(None, records)
    assert lister.replayed(lambda: told.append(1)) == {} and told == [1]


def test_kernels_are_listed_with_their_times_and_without_copies():
    def event(name, start, ms, number=0):
        return SimpleNamespace(
            name=lambda: name,
            start_ns=lambda: start * MS,
            duration_ns=lambda: ms * MS,
            correlation_id=lambda: number,
        )

    events = [event("mine", 0, 2), event("gemm", 1, 4, 7), event("mine", 9, 1)]
    found = device_kernels._listed([*events, event("Memcpy DtoD", 0, 9)], {7: "aten::mm"})
    assert found["device_kernels"] == [
        ("gemm", "aten::mm", 1, pytest.approx(4.0)),
        ("mine", "", 2, pytest.approx(3.0)),
    ]
    spans = {tuple(places): ms for places, ms in found["device_spans"]}
    assert spans == {
        (1,): pytest.approx(2.0),
        (0, 1): pytest.approx(1.0),
        (0,): pytest.approx(3.0),
    }
