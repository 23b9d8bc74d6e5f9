"""How several kernels are timed in turns, with processes that are made up."""

from types import SimpleNamespace

import pytest
import torch

from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.timing import measure, windows
from kernelgym.judge.timing.measure import Stopwatch
from kernelgym.judge.timing.windows import Untimed
from kernelgym.types import Status
from support.made_up_sides import CUDA, LAYOUT_MS, OVERHEAD_MS, Reference, Side, timed

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    properties = SimpleNamespace(total_memory=1 << 37, L2_cache_size=60 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return properties


class Noted(Side):
    """A side that notes in a shared list when it was timed."""

    def __init__(self, call_ms, name, order, device, **how):
        super().__init__(call_ms, device=device, **how)
        self.name, self.order = name, order

    def timed_run(self, batches, *arguments):
        if batches:
            self.order.append(self.name)
        return super().timed_run(batches, *arguments)


def in_turns(*times_ms, device=CPU, reference_ms=4.0, **how):
    order, reference = [], Reference()
    sides = [Noted(ms, n, order, device, **how) for n, ms in enumerate(times_ms)]
    baseline = Noted(reference_ms, "reference", order, device)
    watch = Stopwatch([LiveRun(None, reference, side) for side in sides], baseline)
    return sides, watch, order


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("times_ms", [(0.05, 2.0), (2.0, 0.05), (1.0, 1.0), (0.5, 1.0, 2.0)])
def test_every_kernel_is_timed_beside_one_reference(device, times_ms):
    """Sides refuse more calls a window than were laid out."""
    sides, watch, order = in_turns(*times_ms, device=device)
    found = watch.measure()
    ratios = [measured.timing.speedup for measured in found]
    assert ratios == pytest.approx([4.0 / ms for ms in times_ms])
    assert len({measured.timing.samples for measured in found}) == 1
    assert order.count("reference") == order.count(0) == order.count(len(sides) - 1)


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
def test_turn_times_are_the_kernels_own(device):
    found = in_turns(0.5, 1.0, device=device)[1].measure()
    assert [each.timing.turn_ms for each in found] == pytest.approx([0.5, 1.0])
    (alone,) = in_turns(0.5, device=device)[1].measure()
    assert alone.timing.turn_ms == 0.0


def test_turn_times_leave_out_what_windows_waited():
    """Half of a kernel's windows take three times as long, and waited for two thirds of that."""
    sides, watch, _ = in_turns(1.0, 1.0)
    window_ms = OVERHEAD_MS + 10.0
    sides[1].jitter = iter([0.0, 2 * window_ms] * 100)
    sides[1].waits = iter([0.0, 2 / 3] * 100)
    first, second = watch.measure()
    assert second.timing.turn_ms == pytest.approx(first.timing.turn_ms, rel=0.1)


def test_turn_times_are_the_lower_quartile_of_disturbed_windows():
    sides, watch, _ = in_turns(1.0, 1.0)
    sides[1].jitter = iter([0.0, 8.0, 9.0] * 100)
    first, second = watch.measure()
    assert second.timing.turn_ms == pytest.approx(first.timing.turn_ms, rel=0.01)


def test_windows_of_short_kernels_in_turns_are_longer_than_alone():
    sides, watch, _ = in_turns(0.2, 0.3)
    watch.measure()
    alone, single, _ = in_turns(0.2)
    single.measure()
    calls = [
        max(n for what, *n in side.asked if what == "reserve")[0] for side in (sides[0], *alone)
    ]
    assert calls[0] > 1.5 * calls[1]


@pytest.mark.parametrize(
    ("slow_ms", "calls"), [(0.8, 30), (1.6, 15), (8.0, 10)], ids=["8x", "16x", "80x"]
)
def test_windows_on_a_gpu_hold_fewer_calls_beside_a_much_slower_kernel(gpu, slow_ms, calls):
    """Thirty calls of 0.1 ms fill a window; of a kernel 80 times slower they take 240 ms."""
    gpu.L2_cache_size = 1 << 20  # else more calls are wanted for their inputs to exceed the cache
    sides, watch, _ = in_turns(slow_ms, 0.1, reference_ms=0.1, device=CUDA)
    slow, fast = watch.measure()
    laid_out = [n for what, *n in sides[1].asked if what == "reserve"]
    assert laid_out[-1] == [calls]
    assert slow.timing.turn_ms / fast.timing.turn_ms == pytest.approx(slow_ms / 0.1)


def test_windows_in_turns_hold_many_calls_although_first_ones_on_new_slots_are_slow():
    """Windows of 12 calls would hold 0.15 ms a call where a kernel takes 0.1 ms."""
    sides, watch, _ = in_turns(0.1, 0.1, reference_ms=0.4)
    for side in sides:
        side.waking_ms, side.fresh_ms = 0.6, 0.5
    found = watch.measure()
    assert max(n for what, *n in sides[0].asked if what == "reserve")[0] > 40
    assert found[0].timing.turn_ms == pytest.approx(0.1, rel=0.15)


def test_turn_times_leave_out_the_copy_of_the_output():
    """Without that, a kernel that is 4 times faster would seem to be 1.75 times faster."""
    sides, watch, _ = in_turns(0.3 + 0.4, 0.3 + 0.1)
    for side in sides:
        side.copied_ms = 0.3
    one, other = (each.timing.turn_ms for each in watch.measure())
    assert one / other == pytest.approx(4.0, rel=0.01)


def test_turn_times_keep_a_tenth_where_the_copy_took_longer_elsewhere():
    sides, watch, _ = in_turns(0.3, 0.3)
    sides[0].copied_ms = 5.0
    first, _ = watch.measure()
    assert first.timing.turn_ms == pytest.approx(0.03, rel=0.01)


def test_first_kernel_of_a_round_alternates():
    _, watch, order = in_turns(1.0, 1.0)
    watch.measure()
    kernels = [name for name in order if name != "reference"]
    turns = [kernels[at : at + 2] for at in range(0, len(kernels), 2)]
    assert turns[::2] == [[0, 1]] * len(turns[::2])
    assert turns[1::2] == [[1, 0]] * len(turns[1::2])


def test_time_that_is_up_leaves_the_fewest_rounds(monkeypatch):
    _, watch, _ = in_turns(1.0, 1.0)
    watch._has_enough = lambda pairs: False
    clock = iter(range(0, 1000, 100))
    monkeypatch.setattr(measure.time, "monotonic", lambda: next(clock))
    assert [measured.timing.samples for measured in watch.measure()] == [3, 3]


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("side", [0, 1])
def test_failure_names_the_kernel_that_failed(side, device):
    sides, watch, _ = in_turns(1.0, 1.0, device=device)
    sides[side].refuses = Rejected(Status.TIMEOUT, "no answer")
    with pytest.raises(Rejected, match="while it was timed") as failed:
        watch.measure()
    assert (failed.value.kernel, failed.value.status) == (side, Status.TIMEOUT)


@pytest.mark.parametrize("side", [0, 1])
def test_wrong_output_names_the_kernel(side):
    sides, watch, _ = in_turns(1.0, 1.0)
    sides[side].outcome = OutputComparison(False, message="values differ")
    with pytest.raises(Rejected, match="values differ") as failed:
        watch.measure()
    assert (failed.value.kernel, failed.value.status) == (side, Status.WRONG)


def test_slowing_the_reference_gains_nothing():
    """The reference alone is timed once, for both."""
    _, watch, _ = in_turns(1.0, 2.0)
    found = watch.measure()
    watch._windows._sides[0].call_ms = 2.0
    cleaned, alone_ms = watch.clean(found)
    assert [each.timing.speedup for each in cleaned] == pytest.approx([2.0, 1.0])
    assert alone_ms == pytest.approx(2.0)


def test_lie_of_one_clock_leaves_the_other_kernels_believed():
    sides, watch, _ = in_turns(0.1, 0.1, device=CUDA, reference_ms=0.1)
    sides[1].claims = lambda ms: 0.1 * ms
    honest, liar = watch.measure()
    assert not honest.disputed and liar.disputed
    assert liar.timing.speedup == pytest.approx(1.0, rel=0.05)


def test_work_left_on_the_device_names_its_kernel():
    sides, watch, _ = in_turns(0.1, 0.1, device=CUDA, reference_ms=0.1)
    sides[1].layout_ms = 2 * LAYOUT_MS
    with pytest.raises(Rejected, match="busy with the kernel's work") as failed:
        watch.measure()
    assert failed.value.kernel == 1


@pytest.mark.parametrize("captures", [(True, False), (False, True), (False, False)])
def test_kernel_that_cannot_be_captured_is_bounded_beside_one_that_can(captures):
    sides, watch, _ = in_turns(0.05, 0.05, device=CUDA, reference_ms=0.1)
    for side, able in zip(sides, captures, strict=True):
        side.captures = able
    found = watch.measure()
    assert [each.timing.speedup for each in found] == pytest.approx([2.0, 2.0])
    codes = [[finding.code for finding in each.findings] for each in found]
    assert codes == [[] if able else ["host_bound"] for able in captures]


@pytest.mark.parametrize("side", [0, 1])
def test_kernel_on_a_stream_of_its_own_leaves_the_other_captured(side):
    sides, watch, _ = in_turns(0.05, 0.05, device=CUDA, reference_ms=0.1)
    sides[side].graph_is_empty = True
    found = watch.measure()
    assert [each.timing.speedup for each in found] == pytest.approx([2.0, 2.0])
    assert not sides[side].graph and sides[1 - side].graph


def test_wrong_output_of_an_uncaptured_kernel_is_its_fault():
    sides, watch, _ = in_turns(0.05, 0.05, device=CUDA, reference_ms=0.1)
    sides[1].captures = False
    capture = sides[0].capture

    def captured(tells=False, late=False, change_at=0):
        sides[1].outcome = OutputComparison(False, message="values differ")
        return capture(tells, late, change_at)

    sides[0].capture = captured
    with pytest.raises(Rejected, match="values differ") as failed:
        watch.measure()
    assert failed.value.kernel == 1


def test_kernels_that_a_device_does_not_hold_at_once_are_not_timed(gpu):
    gpu.total_memory = 3 << 20  # a call takes half a megabyte
    _, watch, _ = in_turns(1.0, 1.0, device=CUDA)
    with pytest.raises(Untimed, match="does not hold"):
        watch.measure()


def test_each_kernel_distrusts_every_other_process():
    sides, _, _ = in_turns(1.0, 1.0, 1.0)
    for side in sides:
        ((_, others),) = [what for what in side.asked if what[0] == "distrust"]
        assert len(others) == 3 and side not in others


class Asked(Side):
    """A side that notes the windows in which it is called as a layer of a model."""

    def __init__(self, *arguments, **how):
        super().__init__(*arguments, **how)
        self.as_layer, self.late, self.wrong_then = True, [], False
        self.states = []

    def put_state(self, reference, later):
        assert self.running
        self.states.append((reference.renewals, reference.undone, later))

    def timed_run(self, batches, forward_seeds, keep, others=0, late=None):
        self.late.append(late)
        return super().timed_run(batches, forward_seeds, keep, others, late)

    def compare(self, *given):
        if self.wrong_then and self.late[-1] is not None:
            return OutputComparison(False, message="values differ")
        return super().compare(*given)


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
def test_kernel_is_called_as_a_layer_at_least_once_and_not_timed_then(device):
    kernel, baseline = Asked(1.0, device=device), Asked(4.0, device=device)
    watch = Stopwatch([LiveRun(None, Reference(), kernel)], baseline)
    (measured,) = watch.measure()
    asked = [late for late in kernel.late if late is not None]
    beside = [late for late in baseline.late if late is not None]
    assert asked and beside == (asked if device == CUDA else [])  # in a graph its copies are timed
    uncounted = len(kernel.late) - len(asked)
    assert measured.timing.samples < uncounted
    assert measured.timing.speedup == pytest.approx(4.0)


def test_kernel_that_takes_turns_with_the_reference_is_called_as_a_layer(gpu):
    gpu.total_memory = 3 << 20  # a call takes half a megabyte
    kernel, baseline = Asked(3.0, device=CUDA), Asked(6.0, device=CUDA)
    Stopwatch([LiveRun(None, Reference(), kernel)], baseline).measure()
    assert ("vacate",) in kernel.asked
    assert any(late is not None for late in kernel.late)


def test_kernel_that_takes_turns_with_the_reference_is_not_captured(monkeypatch):
    monkeypatch.setattr(windows, "holds_all", lambda *sizes: False)
    kernel, baseline = Asked(1.0, device=CUDA), Asked(4.0, device=CUDA)
    kernel.late_ms = 4.0  # outside a graph, inputs are written after a delay
    measured, _ = timed(kernel, baseline)
    assert measured.timing.speedup == pytest.approx(4.0)
    assert max(what[1] for what in kernel.asked if what[0] == "reserve") > 1  # calls a window
    assert not [what for what in kernel.asked if what[0] == "capture"]


@pytest.mark.parametrize("held", [{}, {"weight": torch.ones(3)}])
def test_state_is_renewed_on_all_sides_while_a_kernel_is_called_as_a_layer(held):
    sides, reference = [Asked(ms, device=CUDA) for ms in (1.0, 2.0, 4.0)], Reference()
    reference.state = held
    watch = Stopwatch([LiveRun(None, reference, each) for each in sides[:2]], sides[2])
    watch.measure()
    asked = sum(late is not None for late in sides[0].late)
    assert reference.renewals == reference.undone == (asked if held else 0)
    for side, later in zip(sides, (True, True, False), strict=True):
        each = [((n, n - 1, later), (n, n, False)) for n in range(1, reference.renewals + 1)]
        assert side.states == [put for pair in each for put in pair]


def test_kernel_whose_calls_are_slower_once_inputs_are_written_between_them_stays_untimed():
    kernel, baseline = Asked(0.1, device=CUDA), Asked(0.4, device=CUDA)
    kernel.late_ms, baseline.late_ms = 0.3, 0.402
    with pytest.raises(Untimed, match=r"took 0\.3 ms where its inputs are written just before"):
        timed(kernel, baseline)
    assert len([late for late in kernel.late if late is not None]) >= 3


@pytest.mark.parametrize(("kernel_ms", "baseline_ms"), [(0.105, 0.402), (0.15, 0.45)])
def test_copies_between_calls_make_no_kernel_untimed(kernel_ms, baseline_ms):
    kernel, baseline = Asked(0.1, device=CUDA), Asked(0.4, device=CUDA)
    kernel.late_ms, baseline.late_ms = kernel_ms, baseline_ms
    measured, _ = timed(kernel, baseline)
    assert measured.timing.speedup == pytest.approx(4.0)


def test_calls_as_layers_are_verified_on_several_kinds_of_inputs():
    kinds = ("wide", "lattice", "salted", "shifted", "narrow")
    kernel, reference = Asked(0.1, device=CUDA), Reference(telltales=kinds)
    timed(kernel, Asked(0.4, device=CUDA), reference)
    (asked, *_) = [
        keep for keep, late in zip(kernel.kept, kernel.late, strict=True) if late is not None
    ]
    assert len(asked) == 1 + len(kinds) and min(asked) > 0


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
def test_calls_as_layers_are_verified_after_parameters_changed_without_other_kinds(device):
    """A call before the change is right by the old parameters, and would be called wrong."""
    for _ in range(20):
        kernel = Asked(0.1, device=device)
        watch = Stopwatch([LiveRun(None, Reference(), kernel)], Asked(0.4, device=device))
        watch.measure()
        windows_asked = zip(kernel.kept, kernel.late, strict=True)
        assert all(min(keep) > 0 for keep, late in windows_asked if late is not None)


class WrongOnOneKind(Asked):
    """A side whose outputs are wrong on one kind of inputs."""

    def compare(self, index, inputs, outputs, result, kind):
        return OutputComparison(kind != self.wrong_on, message=f"wrong on {kind}")


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("calls", [8, 16, 60])
@pytest.mark.parametrize("kind", ["wide", "lattice", "spiked", "salted"])
def test_kernel_that_is_wrong_on_one_kind_once_timed_is_found(monkeypatch, device, calls, kind):
    monkeypatch.setattr(windows.TimingWindows, "fitting", lambda *_: calls)
    kernel, reference = WrongOnOneKind(1e-3, device=device), Reference(telltales=("salted",))
    reference.usable_kinds = ("wide", "lattice", "spiked", "salted")
    kernel.wrong_on = kind
    watch = Stopwatch([LiveRun(None, reference, kernel)], Asked(4e-3, device=device))
    with pytest.raises(Rejected, match=f"wrong on {kind}"):
        watch.measure()


def test_windows_of_one_call_verify_a_kind_beyond_the_telltales(gpu):
    gpu.total_memory = 3 << 20  # a call takes half a megabyte
    reference = Reference(telltales=("salted",))
    reference.usable_kinds = ("wide", "lattice", "spiked")
    watch = Stopwatch([LiveRun(None, reference, Asked(50.0, device=CUDA))], Asked(60.0))
    watch.measure()
    assert len({*reference.kinds} & {*reference.usable_kinds}) >= 3


@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
def test_kernel_that_is_wrong_as_a_layer_is_told_why(device):
    kernel, baseline = Asked(1.0, device=device), Asked(4.0, device=device)
    kernel.wrong_then = True
    watch = Stopwatch([LiveRun(None, Reference(), kernel)], baseline)
    with pytest.raises(Rejected, match="values differ; outputs of earlier calls") as failed:
        watch.measure()
    assert failed.value.status is Status.WRONG
