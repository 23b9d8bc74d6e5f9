"""A simulated broken device costs no honest kernel its verdict."""

from __future__ import annotations

import pytest

from benchmarks.judge import broken_device

QUICK = sorted(broken_device.BREAKS.keys() - {"hangs"})


@pytest.mark.parametrize("breaks", QUICK)
def test_simulated_batch_blames_only_hostile_kernels(
    breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broken_device, "SCALE", 0.001)
    found = broken_device.simulate(breaks, 4, 60)
    assert (found["honest"], found["blamed"], found["unavailable"]) == (57, 0, 0)
    assert found["hostile"] == 3 and found["lost"] >= found["moved"]
