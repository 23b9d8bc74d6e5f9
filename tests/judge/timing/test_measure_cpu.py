"""How windows on a CPU become a timing, with processes and a host that are made up."""

from dataclasses import replace
from itertools import chain, count, cycle, repeat
from random import Random

import pytest
import torch

from kernelgym.judge.timing import host
from kernelgym.judge.timing.host import LEAST_QUIET_PAIRS
from kernelgym.judge.timing.windows import Untimed
from kernelgym.rulesets import TimingProtocol
from support.made_up_sides import Side, cleaned, timed


def test_on_the_cpu_the_clock_outside_is_the_only_one():
    cpu = torch.device("cpu")
    kernel = Side(1.0, device=cpu, claims=lambda ms: 1e-9)
    measured, _ = timed(kernel, Side(2.0, device=cpu))
    assert measured.timing.speedup == pytest.approx(2.0)


def on_cpu(kernel_waits, call_ms=1.0):
    cpu = torch.device("cpu")
    kernel = Side(call_ms, device=cpu)
    kernel.waits = kernel_waits
    kernel.jitter = (random.uniform(0.0, 3.0 * call_ms) for random in [Random(5)] for _ in count())
    return kernel, Side(2.0, device=cpu)


def test_windows_that_waited_are_measured_again():
    kernel, baseline = on_cpu(cycle((0.0, 0.0, 0.0, 0.5)))
    measured, _ = timed(kernel, baseline)
    assert measured.findings == () and measured.quiet
    undisturbed, its_baseline = on_cpu(repeat(0.0))
    quiet, _ = timed(undisturbed, its_baseline)
    assert measured.timing.samples == quiet.timing.samples == TimingProtocol().max_pairs
    assert 8 <= len(kernel.kept) - len(undisturbed.kept) <= 15


def test_busy_host_is_told_and_its_interval_is_wide():
    quiet, _ = timed(*on_cpu(repeat(0.0)))
    kernel, baseline = on_cpu(cycle((0.5, 0.5, 0.5, 0.5, 0.0)))
    busy, watch = timed(kernel, baseline)
    assert [found.code for found in busy.findings] == ["host_busy"] and not busy.quiet
    assert busy.timing.speedup_low < quiet.timing.speedup_low
    assert busy.timing.speedup_low < min(busy.timing.ratios)
    assert busy.timing.speedup_high > max(busy.timing.ratios)
    baseline.call_ms = 1.0  # the load has gone: the reference may have been slowed by it alone
    alone, _ = cleaned(watch, busy)
    assert [found.code for found in alone.findings] == ["host_busy"]
    assert alone.timing.speedup_low < 0.6 * busy.timing.speedup_low
    assert alone.timing.speedup_high == busy.timing.speedup_high


def test_busy_host_without_quiet_windows_leaves_a_kernel_untimed():
    kernel, baseline = on_cpu(repeat(0.5))
    for side in (kernel, baseline):
        side.protocol = replace(side.protocol, budget_s=0.05)
    with pytest.raises(Untimed, match="other programs") as untimed:
        timed(kernel, baseline)
    assert [found.code for found in untimed.value.findings] == ["host_busy"]


def test_busy_host_is_measured_until_some_windows_did_not_wait():
    late = chain(repeat(0.5, 40), repeat(0.0))
    measured, _ = timed(*on_cpu(late))
    assert [found.code for found in measured.findings] == ["host_busy"]
    assert measured.timing.samples == LEAST_QUIET_PAIRS


def test_host_that_does_not_tell_is_unknown():
    measured, _ = timed(*on_cpu(repeat(None)))
    assert [found.code for found in measured.findings] == ["host_unknown"]
    assert measured.timing.speedup_low < min(measured.timing.ratios)


def test_waits_while_other_programs_leave_the_processors_alone_are_not_the_hosts(monkeypatch):
    monkeypatch.setattr(host.HostLoad, "others", lambda load: 0.1)
    kernel, baseline = on_cpu(cycle((0.5, 0.5, 0.5, 0.5, 0.0)))
    measured, _ = timed(kernel, baseline)
    assert measured.findings == () and measured.quiet
    assert measured.timing.samples == TimingProtocol().max_pairs


def test_windows_go_on_until_the_load_of_the_host_is_known(monkeypatch):
    looks = chain(repeat(True, 40), repeat(False))
    monkeypatch.setattr(host.HostLoad, "is_early", lambda load: next(looks))
    monkeypatch.setattr(host.HostLoad, "others", lambda load: None)
    kernel, baseline = on_cpu(cycle((0.5, 0.5, 0.5, 0.5, 0.0)))
    measured, _ = timed(kernel, baseline)
    assert [found.code for found in measured.findings] == ["host_busy"]
    assert next(looks) is False and len(kernel.kept) > 40


def test_reference_alone_counts_where_it_did_not_wait():
    kernel, baseline = on_cpu(repeat(0.0))
    measured, watch = timed(kernel, baseline)
    baseline.waits = cycle((0.5, 0.0))
    baseline.jitter = cycle((2.0 * baseline.slots, 0.0))  # a window that waited is twice as long
    _, alone_ms = cleaned(watch, measured)
    assert alone_ms == pytest.approx(2.0)


def test_discarded_windows_lower_the_low_end():
    """A kernel that makes its slowest third wait must gain nothing by having it discarded."""
    clean, lows = [], []
    for waits in (0.0, 0.5):
        kernel, baseline = on_cpu(repeat(0.0))
        measured, watch = timed(kernel, baseline)
        all_pairs = replace(measured, beside_ms=measured.timing.reference_ms * (1.0 + waits))
        baseline.call_ms = 2.0
        lows.append(cleaned(watch, all_pairs)[0].timing.speedup_low)
        clean.append(measured.timing.speedup_low)
    assert clean[0] == clean[1]
    assert lows[1] == pytest.approx(lows[0] / 1.5, rel=0.01)
