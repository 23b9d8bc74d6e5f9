"""What becomes of a time that is hard to believe: a second process is asked."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
import torch

from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.evidence.device_share import DeviceShare
from kernelgym.judge.evidence.evidence import Evidence
from kernelgym.judge.outcome import Circumstances, JudgedCalls, JudgeOutcome, verdict_of
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launch_count import LaunchTally
from kernelgym.judge.session.live_run import JudgedCase, LiveRun
from kernelgym.judge.timing.measure import Measurement
from kernelgym.judge.timing.timer import Timer, _unexplained
from kernelgym.judge.timing.windows import Untimed
from kernelgym.rulesets import RULESETS
from kernelgym.types import Finding, Kernel, Severity, Status, Timing
from kernelgym.verdict import CLOCK_MISMATCH, UNCONFIRMED_SPEED
from support.peers import PROBLEM, SEEDS

KERNEL = Kernel("", "triton")
AFFINE_WITH_STATE = dataclasses.replace(
    PROBLEM,
    source=PROBLEM.source.replace(
        "    def forward(self, x):\n",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('calls', torch.zeros(()))\n"
        "    def forward(self, x):\n        self.calls += 1\n",
    ).replace("2 * x", "2 * x + self.calls"),
)


REFERENCE = SimpleNamespace(stateful=False)


def measured(speedup, disputed=False, more=(), baseline="eager"):
    """What a process measured, of a reference that takes 1 ms."""
    time = Timing(1.0 / speedup, 1.0, speedup, 0.99 * speedup, 9, speedup_high=1.01 * speedup)
    time = dataclasses.replace(time, baseline=baseline)
    found = (Finding(CLOCK_MISMATCH, "it reported too little", Severity.SOFT),) if disputed else ()
    return Measurement(time, (*found, *more), disputed)


class Processes:
    """Opens processes whose calls come out as told."""

    def __init__(self, outcome, tally):
        self.outcome, self.tally, self.opened = outcome, tally, 0
        self.constructed, self.contexts = [], []
        self.ask_for_contexts = lambda: self.contexts.append("asked")
        self.settle = lambda: self.contexts.append("settled")

    @contextlib.contextmanager
    def open(self, language, source):
        self.opened += 1
        model = SimpleNamespace(
            load=lambda *_: None,
            await_load=lambda: None,
            construct=self.constructed.append,
        )
        yield SimpleNamespace(model=model, call=lambda *_: self.outcome, tally=self.tally)


class Keeper(Timer):
    """Takes what its processes measure, one after the other, from a list."""

    def __init__(self, *measurements, ruleset="strict", outcome=None, tally=None, on_cuda=True):
        device_lock = SimpleNamespace(shared=contextlib.nullcontext)
        accelerator = SimpleNamespace(
            device_lock=device_lock,
            on_cuda=on_cuda,
            shares_device=False,
            floor_ms=lambda _: 0.0,
            device=torch.device("cpu"),
        )
        self.processes = Processes(outcome or OutputComparison(True), tally or LaunchTally(9, 0))
        super().__init__(RULESETS[ruleset], accelerator, self.processes, None)
        self._left = list(measurements)

    def _measure(self, runs, share, watched=None):
        found = self._left.pop(0)
        if isinstance(found, Exception):
            raise found
        return [found]

    def verdict(self, reference=REFERENCE):
        """Time a kernel that was judged correct."""
        session = SimpleNamespace(
            buffers=SimpleNamespace(example=([], ())), tally=LaunchTally(9, 0)
        )
        case = JudgedCase(None, KERNEL, self._ruleset, None)
        run = LiveRun(case, reference, session)
        (timed,) = self.timed([run], contextlib.ExitStack())
        calls = JudgedCalls(planned=5, passed=5)
        return verdict_of(JudgeOutcome(calls, loaded=True, timing=timed), Circumstances())


def codes(verdict):
    return [finding.code for finding in verdict.findings]


def test_a_clock_that_is_believed_needs_no_second_process():
    keeper = Keeper(measured(2.0))
    assert keeper.verdict().speedup == 2.0 and keeper.processes.opened == 0


def test_time_far_below_the_watched_calls_is_not_believed_without_a_graph():
    ran = DeviceShare(0.5, 0.0, 0.0, 0.5, 0.0)
    found = _unexplained(Evidence(ran=ran), measured(2.0))
    assert "the kernels of a watched call 0.5000 ms" in str(found)
    assert [finding.code for finding in found.findings] == [UNCONFIRMED_SPEED]


def test_where_the_second_processs_clock_is_right_its_time_counts():
    keeper = Keeper(measured(0.8, disputed=True), measured(0.94))
    verdict = keeper.verdict()
    assert verdict.speedup == 0.94 and codes(verdict) == ["clock_confirmed"]
    assert "it reported too little" in verdict.findings[0].message


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        (measured(0.8, True), measured(0.9, True), 0.9),
        (measured(0.9, True), measured(0.8, True), 0.9),
        (measured(0.5, True), measured(0.9, True), 0.5),  # too far apart
        (measured(0.8, True), measured(0.9, True, baseline="compile"), 0.8),
    ],
)
def test_on_a_cpu_the_shorter_of_near_times_counts(first, second, counts):
    keeper = Keeper(first, second, on_cuda=False)
    verdict = keeper.verdict()
    assert verdict.speedup == counts and codes(verdict) == [CLOCK_MISMATCH]
    assert keeper.processes.opened == 1


UNSETTLED = [
    measured(0.9, True),
    Rejected(Status.TIMEOUT, "no answer"),
    Rejected(Status.RUNTIME_ERROR, "out of memory"),
]


@pytest.mark.parametrize("second", UNSETTLED)
def test_on_a_gpu_a_disputed_clock_gives_no_time(second):
    verdict = Keeper(measured(0.8, True), second).verdict()
    assert verdict.correct and not verdict.timed and verdict.speedup == 0.0
    assert codes(verdict) == [CLOCK_MISMATCH] and "contradicts" in verdict.message


def test_on_a_gpu_a_second_process_says_why():
    """Another program on the device is no fault of the kernel's clock."""
    shared = Finding("device_shared", "another program computes", Severity.SOFT)
    verdict = Keeper(measured(0.8, True), Untimed("the device is busy", (shared,))).verdict()
    assert verdict.correct and not verdict.timed and codes(verdict) == ["device_shared"]


def test_a_speedup_is_not_confirmed_by_disputed_clocks():
    keeper = Keeper(measured(20.0), *[measured(19.0, disputed=True)] * 2)
    verdict = keeper.verdict()
    assert not verdict.timed and codes(verdict) == [CLOCK_MISMATCH]


def test_what_else_was_found_of_the_first_process_is_kept():
    more = [
        Finding("threads_while_timed", "one", Severity.SOFT),
        Finding("host_bound", "of no matter", Severity.INFO),
    ]
    verdict = Keeper(measured(0.8, True, more), measured(0.94)).verdict()
    assert codes(verdict) == ["threads_while_timed", "clock_confirmed"]


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.RUNTIME_ERROR])
def test_who_was_right_need_not_bear_a_second_process(status):
    failing = Rejected(status, "out of memory")
    verdict = Keeper(measured(0.8, True), failing, on_cuda=False).verdict()
    assert verdict.speedup == 0.8 and codes(verdict) == [CLOCK_MISMATCH]


def test_contexts_of_later_processes_are_made_before_it_is_timed():
    keeper = Keeper(measured(0.8, True), measured(0.94))
    keeper.verdict()
    assert keeper.processes.contexts == ["asked", "settled"]


@pytest.mark.parametrize("stateful", [False, True])
def test_a_second_process_begins_where_the_first_did(stateful):
    problem = AFFINE_WITH_STATE if stateful else PROBLEM
    reference = Reference(problem, RULESETS["strict"], SEEDS)
    reference.prepare()
    assert reference.stateful is stateful
    keeper = Keeper(measured(0.8, True), measured(0.94))
    keeper.verdict(reference)
    (constructed,) = keeper.processes.constructed
    assert (constructed is reference) is not stateful
    assert constructed.seeds is reference.seeds and constructed.problem is problem


def test_a_clock_that_is_not_believed_confirms_no_speedup():
    keeper = Keeper(measured(20.0), measured(9.0, disputed=True), measured(19.0))
    verdict = keeper.verdict()
    assert verdict.speedup == 19.0 and keeper.processes.opened == 2


def test_a_second_process_that_cannot_be_timed_leaves_the_workers_time():
    busy = Untimed("the device is busy")
    verdict = Keeper(measured(0.8, disputed=True), busy, on_cuda=False).verdict()
    assert verdict.speedup == 0.8 and codes(verdict) == [CLOCK_MISMATCH]


def test_a_time_that_is_hard_to_believe_is_confirmed_whichever_process_it_came_from():
    keeper = Keeper(measured(3.0, disputed=True), measured(20.0), measured(19.0))
    verdict = keeper.verdict()
    assert verdict.speedup == 19.0 and keeper.processes.opened == 2
    assert codes(verdict) == ["speedup_confirmed"]
    keeper = Keeper(measured(3.0, disputed=True), measured(20.0), measured(9.0))
    verdict = keeper.verdict()
    assert verdict.timing is None and codes(verdict) == [UNCONFIRMED_SPEED]


def test_a_wrong_output_in_the_second_process_ends_it():
    wrong = OutputComparison(False, message="values differ")
    with pytest.raises(Rejected, match=r"second process.*values differ") as end:
        Keeper(measured(0.8, disputed=True), outcome=wrong).verdict()
    assert end.value.status is Status.WRONG


@pytest.mark.parametrize("first", [measured(0.8, disputed=True), measured(20.0)])
def test_who_launches_nothing_in_the_second_process_is_refused(first):
    keeper = Keeper(first, measured(20.0), tally=LaunchTally(9, 8))
    with pytest.raises(Rejected, match=r"second process.* 8 of 9 calls") as end:
        keeper.verdict()
    assert end.value.status is Status.REJECTED
    assert [finding.code for finding in end.value.findings] == ["no_kernel_launch"]


def test_only_rules_that_want_a_custom_kernel_ask_for_launches():
    keeper = Keeper(
        measured(0.8, disputed=True),
        measured(0.9),
        ruleset="kernelbench",
        tally=LaunchTally(9, 9),
    )
    assert keeper.verdict().speedup == 0.9
