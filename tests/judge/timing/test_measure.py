"""How windows become a timing, with processes that are made up: no GPU, no clock, no noise."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.timing.measure import Stopwatch
from kernelgym.judging_memory import SPARE_BYTES
from kernelgym.rulesets import RULESETS, TimingProtocol
from kernelgym.types import Status
from support import made_up_sides
from support.made_up_sides import CUDA, LAYOUT_MS, SHAPE, Reference, Side, cleaned, timed


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    properties = SimpleNamespace(total_memory=1 << 37, L2_cache_size=60 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return properties


def test_a_speedup_is_the_ratio_of_the_devices_times():
    measured, _ = timed(Side(0.05), Side(0.1))
    assert measured.timing.speedup == pytest.approx(2.0)
    assert measured.timing.kernel_ms == pytest.approx(0.05)
    assert measured.findings == ()


def test_a_window_holds_enough_calls_and_more_than_the_cache():
    kernel, baseline = Side(0.05), Side(0.1)
    timed(kernel, baseline)
    counts = [what[1] for what in kernel.asked if what[0] == "reserve"]
    call_bytes = 2 * 4 * SHAPE[0] * SHAPE[1]
    assert counts[0] == 1
    assert counts[-1] * 0.05 >= TimingProtocol().device_window_ms
    assert counts[-1] == 256 or counts[-1] * call_bytes > 4 * (60 << 20)
    assert [what[1] for what in baseline.asked if what[0] == "reserve"] == counts


def test_the_first_windows_can_be_laid_out_beforehand():
    kernel, baseline = Side(0.05), Side(0.1)
    watch = Stopwatch([LiveRun(None, Reference(), kernel)], baseline)
    watch.lay_out()
    before = [
        [what[1] for what in side.asked if what[0] == "reserve"] for side in (kernel, baseline)
    ]
    assert before == [[1], [1]]
    assert (len(kernel.kept), len(baseline.kept)) == (1, 1)
    assert watch.measure()[0].timing.speedup == pytest.approx(2.0)
    counts = [what[1] for what in kernel.asked if what[0] == "reserve"]
    assert counts.count(1) == 1, "what is laid out need not be laid out again"


@pytest.fixture
def large(monkeypatch):
    """Let everything be of one GiB."""
    monkeypatch.setattr(made_up_sides, "SHAPE", (1 << 14, 1 << 14))


def test_a_first_window_that_was_slow_in_company_does_not_count():
    kernel = Side(20.0)
    slow = iter([500.0])
    kernel.claims = lambda ms: ms + next(slow, 0.0)
    watch = Stopwatch([LiveRun(None, Reference(), kernel)], Side(40.0))
    watch.lay_out()
    (measured,) = watch.measure()
    assert measured.timing.speedup == pytest.approx(2.0)
    assert len(kernel.kept) == measured.timing.samples + 1


def test_a_long_calls_second_window_counts_and_its_first_does_not():
    kernel = Side(20.0)
    slow = iter([500.0])
    kernel.claims = lambda ms: ms + next(slow, 0.0)  # what is allocated at the first call
    measured, _ = timed(kernel, Side(40.0))
    assert measured.timing.speedup == pytest.approx(2.0)
    assert len(kernel.kept) == measured.timing.samples + 1


def test_short_calls_are_captured_and_long_ones_are_not():
    short, long = Side(0.05), Side(3.0)
    short.protocol = long.protocol = TimingProtocol(graph_below_ms=1.0)
    timed(short, Side(0.1))
    timed(long, Side(3.0))
    assert ("capture", True) in short.asked
    assert not any(what[0] == "capture" for what in long.asked)


@pytest.mark.parametrize("reference_captures", [True, False])
def test_a_captured_kernel_tells_of_its_outputs_in_every_window_where_the_reference_does(
    reference_captures,
):
    kernel = Side(0.05)
    timed(kernel, Side(0.1, captures=reference_captures))
    assert kernel.graph and kernel.tells is not reference_captures


def test_calls_of_a_reference_that_draws_are_never_captured():
    kernel = Side(0.05)
    timed(kernel, Side(0.1), Reference(draws=True))
    assert not any(what[0] == "capture" for what in kernel.asked)


def test_a_kernel_that_cannot_be_captured_says_so_and_is_still_bounded():
    measured, _ = timed(Side(0.05, captures=False), Side(0.1))
    assert [finding.code for finding in measured.findings] == ["host_bound"]
    liar = Side(0.05, captures=False, claims=lambda ms: ms / 5)
    measured, _ = timed(liar, Side(0.1))
    assert [finding.code for finding in measured.findings] == ["clock_mismatch", "host_bound"]
    assert measured.timing.speedup == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("reference_captures", [True, False])
def test_a_kernel_on_a_stream_of_its_own_is_not_in_the_graph_and_is_timed_without(
    reference_captures,
):
    kernel = Side(0.05)
    kernel.graph_is_empty = True
    measured, _ = timed(kernel, Side(0.1, captures=reference_captures))
    assert measured.timing.speedup == pytest.approx(2.0) and not kernel.graph
    codes = [finding.code for finding in measured.findings]
    assert codes == (["host_bound"] if reference_captures else [])


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
def test_a_process_that_reports_too_little_is_not_believed(part):
    measured, _ = timed(Side(0.1, claims=lambda ms: part * ms), Side(0.1))
    assert [finding.code for finding in measured.findings] == ["clock_mismatch"]
    assert measured.timing.speedup == pytest.approx(1.0, rel=0.05)


def test_noise_of_a_kernels_own_making_does_not_widen_what_it_may_claim():
    liar = Side(0.1, claims=lambda ms: 0.1 * ms)
    liar.jitter = iter([0.0, 30.0] * 500)
    measured, _ = timed(liar, Side(0.1))
    assert [finding.code for finding in measured.findings] == ["clock_mismatch"]
    assert measured.timing.speedup < 1.1


def test_one_hiccup_of_the_machine_is_forgiven():
    kernel = Side(0.1)
    kernel.jitter = iter([0.0] * 12 + [5.0] * 12)
    measured, _ = timed(kernel, Side(0.1))
    assert measured.findings == () and measured.timing.speedup == pytest.approx(1.0)


def test_work_left_on_the_device_between_windows_is_found():
    with pytest.raises(Rejected, match="busy with the kernel's work") as end:
        timed(Side(0.1, layout_ms=2 * LAYOUT_MS), Side(0.1))
    assert end.value.status is Status.RUNTIME_ERROR


def test_a_wrong_output_of_a_timed_call_ends_it():
    kernel = Side(0.1)
    kernel.outcome = OutputComparison(False, message="values differ")
    with pytest.raises(Rejected, match="while it was timed: values differ") as end:
        timed(kernel, Side(0.1))
    assert end.value.status is Status.WRONG


def test_one_call_of_a_window_is_verified_and_every_one_of_a_model_with_state():
    kernel = Side(3.0)
    timed(kernel, Side(3.0))
    assert {len(kept) for kept in kernel.kept} == {1}
    kernel, baseline = Side(0.05), Side(0.05)
    timed(kernel, baseline, Reference(stateful=True))
    assert kernel.kept[-1] == list(range(len(kernel.kept[-1]))) and len(kernel.kept[-1]) > 100
    # As many are read on the other side: reading is part of a window.
    assert len(baseline.kept[-1]) == len(kernel.kept[-1])


def test_failures_are_blamed_on_the_side_that_failed():
    kernel, baseline = Side(0.1), Side(0.1)
    kernel.refuses = Rejected(Status.TIMEOUT, "no answer")
    with pytest.raises(Rejected, match="while it was timed: no answer"):
        timed(kernel, baseline)
    kernel, baseline = Side(0.1), Side(0.1)
    baseline.refuses = Rejected(Status.TIMEOUT, "no answer")
    with pytest.raises(JudgeError, match="the reference cannot be timed: no answer") as end:
        timed(kernel, baseline)
    assert not isinstance(end.value, DeviceFull)
    kernel, baseline = Side(0.1), Side(0.1)
    baseline.refuses = Rejected(Status.RUNTIME_ERROR, "OutOfMemoryError: CUDA out of memory.")
    with pytest.raises(DeviceFull, match="the reference cannot be timed: OutOfMemoryError"):
        timed(kernel, baseline)


@pytest.fixture
def scarce(gpu):
    """Let the device hold what one side takes, and not both."""
    gpu.total_memory = 3 << 20  # a call takes half a megabyte
    return gpu


def test_very_large_problems_take_turns_on_the_device(scarce):
    kernel, baseline = Side(3.0), Side(3.0)
    measured, watch = timed(kernel, baseline)
    assert measured.timing.speedup == pytest.approx(1.0)
    assert ("vacate",) in kernel.asked and ("vacate",) in baseline.asked
    assert (kernel.slots == 0) != (baseline.slots == 0)
    asked = len(kernel.asked)
    cleaned(watch, measured)
    assert len(kernel.asked) == asked  # its process is gone by then


def test_side_that_takes_turns_is_timed_after_two_windows_on_other_values(scarce):
    kernel, baseline, reference = Side(20.0), Side(40.0), Reference()
    Stopwatch([LiveRun(None, reference, kernel)], baseline).lay_out()
    assert kernel.kept == baseline.kept == [[], [], [0]]
    *own, timed_on = reference.drawn[:3]
    *others, again = reference.drawn[3:]
    assert timed_on == again, "both sides are timed on the same values"
    assert len({*own, timed_on, *others}) == 5, "which neither has seen before"


def test_who_takes_turns_makes_no_call_too_many_where_calls_depend_on_those_before(scarce):
    kernel, baseline = Side(20.0), Side(40.0)
    Stopwatch([LiveRun(None, Reference(stateful=True), kernel)], baseline).lay_out()
    assert kernel.kept == baseline.kept == [[0]]


@pytest.mark.parametrize(
    ("sets", "alone", "in_turn"),
    [(11.9, False, True), (12.1, False, False), (12.1, True, True), (27.0, True, False)],
)
def test_turns_are_taken_only_where_the_device_may_not_hold_both_sides(
    gpu, large, sets, alone, in_turn
):
    for_contexts = 14 / 13
    gpu.total_memory = int((sets * (1 << 30) + SPARE_BYTES) * for_contexts)
    kernel, baseline = Side(20.0), Side(40.0)
    kernel.alone = alone
    timed(kernel, baseline)
    assert (("vacate",) in baseline.asked) == in_turn


def test_the_faster_of_the_references_times_counts():
    kernel, baseline = Side(0.1), Side(0.2)
    measured, watch = timed(kernel, baseline)
    baseline.call_ms = 0.1
    faster, alone_ms = cleaned(watch, measured)
    assert faster.timing.speedup == pytest.approx(1.0, rel=0.01)
    assert [finding.code for finding in faster.findings] == ["reference_slowed"]
    assert alone_ms == pytest.approx(0.1, rel=0.01)
    baseline.call_ms = 0.3
    assert cleaned(watch, measured)[0] == measured


def test_a_reference_need_not_be_timed_alone_where_it_was_as_fast_as_it_is_known_to_be():
    measured, watch = timed(Side(0.1), Side(0.2))
    assert watch.is_clean([measured], known_ms=0.2)
    assert not watch.is_clean([measured], known_ms=0.198)
    assert not watch.is_clean([measured], known_ms=0.0)
    cpu = torch.device("cpu")
    measured, watch = timed(Side(1.0, device=cpu), Side(2.0, device=cpu))
    assert not watch.is_clean([measured], known_ms=2.0)


def test_outputs_near_the_references_are_not_compared_again():
    for around, first in (({}, "compare"), ({GIVEN: object()}, "resembles")):
        kernel = Side(0.1)
        kernel.around, kernel.lesson = around, object()
        timed(kernel, Side(0.1))
        looked = [what[0] for what in kernel.asked if what[0] in ("compare", "resembles")]
        assert looked[0] == first and set(looked[1:]) == {"resembles"}


def test_outputs_that_are_not_near_get_the_whole_comparison():
    kernel = Side(0.1)
    kernel.lesson, kernel.near = object(), False
    timed(kernel, Side(0.1))
    looked = [what[0] for what in kernel.asked if what[0] in ("compare", "resembles")]
    assert looked.count("compare") == looked.count("resembles") + 1
    kernel = Side(0.1)
    kernel.lesson, kernel.near = object(), False
    kernel.outcome = OutputComparison(False, message="values differ")
    with pytest.raises(Rejected, match="values differ"):
        timed(kernel, Side(0.1))


def test_outputs_of_which_nothing_is_known_are_always_compared():
    kernel = Side(3.0)
    timed(kernel, Side(3.0))
    assert not any(what[0] == "resembles" for what in kernel.asked)


class Learner(CandidateSession):
    """A session on a device, without a process."""

    def __init__(self, device=CUDA):
        self.device, self.around, self._ruleset = device, {}, RULESETS["strict"]


EXPECTED = ExpectedOutput(torch.ones(4), torch.ones(4, dtype=torch.float64), False)


@pytest.mark.parametrize(
    ("learner", "reference", "expected"),
    [
        (Learner(), Reference(stateful=True), EXPECTED),
        (Learner(), Reference(draws=True), EXPECTED),
        (Learner(), Reference(), replace(EXPECTED, mutates_inputs=True)),
        (Learner(torch.device("cpu")), Reference(), EXPECTED),
    ],
    ids=["stateful", "draws", "mutates", "cpu"],
)
def test_nothing_is_learned_from_calls_that_depend_on_more_than_the_inputs(
    learner, reference, expected
):
    learner.learn(reference, expected)
    assert not learner.around


def test_what_a_call_told_first_is_kept_for_its_kind_of_inputs():
    learner = Learner()
    learner.learn(Reference(), EXPECTED)
    first = learner.around[GIVEN]
    assert len(first.bounds) == 1
    learner.learn(Reference(), replace(EXPECTED, kind="salted"))
    learner.learn(Reference(), EXPECTED)
    assert learner.around[GIVEN] is first and set(learner.around) == {GIVEN, "salted"}


class Shortcut(Side):
    """Wrong on whatever is not the problem's own."""

    def compare(self, index, inputs, outputs, result, expected):
        return OutputComparison(expected == GIVEN, message="values differ")


@pytest.mark.parametrize("call_ms", [0.05, 20.0])
def test_a_short_cut_that_is_right_on_the_problems_own_inputs_alone_is_found(call_ms):
    telltale = Reference(telltales=("salted",))
    with pytest.raises(Rejected, match="while it was timed: on salted inputs, values differ"):
        timed(Shortcut(call_ms), Side(call_ms), telltale)
    assert {GIVEN, "salted"} >= set(telltale.kinds)
    timed(Shortcut(call_ms), Side(call_ms), Reference())


def test_of_two_pairs_one_is_on_other_inputs_in_one_call():
    reference = Reference(telltales=("salted", "wide"))
    kernel = Side(20.0)
    measured, _ = timed(kernel, Side(20.0), reference)
    assert kernel.must_launch == reference.kinds.count(GIVEN), "on others it may see nothing to do"
    pairs = [reference.kinds[at : at + 2] for at in range(0, measured.timing.samples + 1, 2)]
    assert all((GIVEN in pair) == (len({*pair} - {GIVEN}) == 1) for pair in pairs if len(pair) > 1)
    assert len(reference.kinds) == measured.timing.samples + 1


def test_seeing_other_inputs_does_not_tell_which_of_several_calls_is_verified():
    reference, kernel = Reference(telltales=("salted",)), Side(0.05)
    looked = set()
    kernel.compare = lambda index, *_: looked.add(_[-1]) or OutputComparison(True)
    timed(kernel, Side(0.05), reference)
    last = reference.kinds[-kernel.slots :]
    assert last.count("salted") == 1, "one of every window's calls"
    assert looked == {GIVEN, "salted"}


def test_nobody_is_blamed_where_the_reference_is_at_its_limits():
    reference = Reference(telltales=("wide",))
    reference.bearable = False
    timed(Shortcut(20.0), Side(20.0), reference)


def test_values_of_timed_calls_are_secret_where_judged_ones_are_not():
    first, second = Reference(secret=""), Reference(secret="")
    timed(Side(3.0), Side(3.0), first)
    timed(Side(3.0), Side(3.0), second)
    assert first.drawn and not set(first.drawn) & set(second.drawn)
    assert len(set(first.drawn)) == len(first.drawn)
