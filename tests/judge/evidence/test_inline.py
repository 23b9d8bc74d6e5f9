"""Evidence from the process that is judged, gathered between its calls."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelgym.errors import JudgeError
from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.evidence.evidence import prepare
from kernelgym.judge.evidence.inline import InlineWatch, can_be_watched
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import JudgedCase, LiveRun
from kernelgym.judge.stage_clock import StageClock
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Status
from support.programs import AFFINE, CPP_SOURCE, TRITON, TRITON_SOURCE, doing, problem, replaced

GIVEN, WIDE, SALTED = "given", "wide", "salted"
SEEN = {"launches": 2, "working": 1, "bytes": {}, "products": 0, "elements": 0}
LEFT_S = 3.0


class _Session:
    """Says what it is told to; keeps what it was asked for, in order."""

    device = "cpu"

    def __init__(self, seen=SEEN, without=False, failing=()):
        self._seen, self._without, self._failing = seen, without, failing
        self.public = None
        self.asked, self.left_s, self._mode = [], LEFT_S, "off"
        self.channel = self.buffers = self  # it plays its parts itself

    def trace(self, mode):
        self.asked.append(mode)
        was, self._mode = self._mode, mode
        return self._seen if was == "record" else {}

    def grant(self, seconds):
        self.left_s = seconds

    def move(self):
        self.asked.append("move")

    def call(self, reference, index, explain=True):
        self.asked.append(index)
        if self._mode == "ablate":
            if self._without is None:
                raise Rejected(Status.RUNTIME_ERROR, "it needs them")
            return OutputComparison(self._without)
        reference.model(torch.ones(8))
        return OutputComparison(index not in self._failing)


def _reference(plan, secret="00", stateful=False, telling=GIVEN):
    def kind_of(index):
        return plan[index] if index < len(plan) else telling

    return SimpleNamespace(
        plan=plan, kind_of=kind_of, seeds=Seeds(secret), stateful=stateful, model=torch.nn.ReLU()
    )


def _watch(session, reference):
    kernel = Kernel(TRITON_SOURCE, "triton")
    case = JudgedCase(AFFINE, kernel, RULESETS["strict"], reference.seeds)
    watch = InlineWatch(LiveRun(case, reference, session), StageClock())
    for index in range(len(reference.plan)):
        if not watch.call(index).passed:
            break
    return watch


ONLY_SECOND = (GIVEN, GIVEN, WIDE)  # two may be watched, and one of them is the first
LAST = len(ONLY_SECOND)


def test_one_judged_call_is_watched_and_one_more_is_made_without_the_kernels():
    session = _Session()
    watch = _watch(session, _reference(ONLY_SECOND))
    assert session.asked == [0, "move", "record", 1, "ablate", LAST + 1, "off", 2]
    assert watch.begun and watch.found is not None and watch.found.contributes
    assert session.left_s == LEFT_S, "what the kernel may take for its calls is as it was"
    watch.end()
    assert session.asked[-1] == "end"


@given(
    st.lists(st.sampled_from([GIVEN, WIDE, SALTED]), min_size=1, max_size=9),
    st.sampled_from([GIVEN, WIDE]),
    st.binary(min_size=4, max_size=4),
)
def test_it_is_a_call_that_tells_something_and_never_the_first(plan, telling, secret):
    session = _Session()
    watch = _watch(session, _reference(tuple(plan), secret.hex(), telling=telling))
    judged = [each for each in session.asked if each in range(len(plan))]
    assert judged == list(range(len(plan))), "every call is judged once, and in its order"
    assert watch.begun == (telling in plan[1:])
    if watch.begun:
        assert plan[session.asked[session.asked.index("record") + 1]] == telling


@pytest.mark.slow
@given(st.integers(3, 9), st.integers(0, 2**32))
def test_which_call_it_is_nobody_can_tell_beforehand(calls, secret):
    assume(calls > 2)
    places = set()
    for number in range(64):
        session = _Session()
        _watch(session, _reference((GIVEN,) * calls, f"{secret + number:08x}"))
        places.add(session.asked[session.asked.index("record") + 1])
    assert places == set(range(1, calls))


@pytest.mark.parametrize(
    "session",
    [
        _Session({**SEEN, "launches": 0}),
        _Session({**SEEN, "working": 0}),
        _Session({**SEEN, "bytes": {"pointwise": 1e9}}),
        _Session({**SEEN, "captured": True}),
        _Session({**SEEN, "hidden": True}),
        _Session({}),
        _Session(without=True),
        _Session(without=None),
        _Session(failing=(1,)),
    ],
)
def test_nothing_but_good_is_said_of_a_kernel(session):
    watch = _watch(session, _reference(ONLY_SECOND))
    assert watch.begun and watch.found is None


def test_a_reference_that_keeps_state_is_not_asked_in_between():
    session = _Session()
    assert not _watch(session, _reference(ONLY_SECOND, stateful=True)).begun
    assert session.asked == [0, 1, 2]


def test_calls_on_values_that_everybody_knows_are_not_watched():
    session = _Session()
    session.public = PublicCalls(torch.device("cpu"))
    assert not _watch(session, _reference(ONLY_SECOND)).begun
    assert session.asked == [0, 1, 2]


def test_a_process_that_cannot_be_watched_before_it_holds_a_kernel_is_no_kernels_fault():
    class Broken(_Session):
        def trace(self, mode):
            raise Rejected(Status.RUNTIME_ERROR, "gone")

    with pytest.raises(JudgeError, match="cannot be watched in this process: gone"):
        prepare(Broken())


@pytest.mark.parametrize(
    ("kernel", "can"),
    [
        (Kernel(TRITON_SOURCE, "triton"), True),
        (Kernel(TRITON_SOURCE + "f = torch.compile(g)\n", "triton"), False),
        (Kernel("import threading\n" + TRITON_SOURCE, "triton"), False),
        (Kernel(TRITON_SOURCE + "view = x.numpy()\n", "triton"), False),
        (Kernel(TRITON_SOURCE + "f = getattr(torch, 'mm')\n", "triton"), False),
        (Kernel(TRITON_SOURCE + "model.eval()\n", "triton"), False),
        (Kernel(TRITON_SOURCE + "# evaluated in order\n", "triton"), True),
        (Kernel(TRITON_SOURCE + "# one thread block each\n", "triton"), True),
        (Kernel('"""For numpy users."""\n' + TRITON_SOURCE, "triton"), True),
        (Kernel(TRITON_SOURCE + "np = __import__('num' 'py')\n", "triton"), False),
        (Kernel(TRITON_SOURCE + "from numpy import dot\n", "triton"), False),
        (Kernel(TRITON_SOURCE + "import numpy.linalg as la\n", "triton"), False),
        (Kernel(TRITON_SOURCE + "# thread\nnot a module", "triton"), False),
        (Kernel(CPP_SOURCE, "cpp"), False),
    ],
)
def test_what_needs_a_process_of_its_own(kernel, can):
    assert can_be_watched(kernel) == can


BREAKS = replaced(
    replaced(TRITON, "return out", "self.broken |= bool(out.isnan().any())\n        return out"),
    "super().__init__()",
    "super().__init__()\n        self.broken = False",
)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["raise ValueError('broken')", "return x + 7", "while True: pass"])
def test_who_does_not_bear_that_its_kernels_are_taken_out_is_judged_again(asking, then):
    body = f"if self.broken:\n            {then}\n        out = torch.empty_like"
    kernel = replaced(BREAKS, "out = torch.empty_like", body)
    verdict = asking.evaluate(AFFINE, kernel)
    assert verdict.correct and verdict.custom_share, verdict


def test_who_leaves_its_kernels_where_they_gave_nothing_is_asked_apart(asking):
    safe = (
        "if self.broken:\n            return torch.relu(x) * 2 + b\n        out = torch.empty_like"
    )
    kernel = replaced(BREAKS, "out = torch.empty_like", safe)
    for _ in range(6):  # the watched call may be the last
        verdict = asking.evaluate(AFFINE, kernel)
        assert verdict.correct and verdict.custom_share, verdict


def test_who_is_wrong_after_it_was_watched_stays_wrong(asking):
    top = "seen = [False]\n"
    body = "if torch._C._len_torch_dispatch_stack():\n    seen[0] = True\n"
    kernel = doing(body + "elif seen[0]:\n    return x + 7")
    for _ in range(3):
        verdict = asking.evaluate(AFFINE, Kernel(top + kernel.source, "triton"))
        # Where the watched call is the last, there is no later one to be wrong in.
        assert verdict.status in (Status.WRONG, Status.CORRECT), verdict


def test_a_kernel_that_is_refused_is_refused_by_a_process_of_its_own(asking):
    verdict = asking.evaluate(AFFINE, doing("return torch.relu(x) * 2 + b"))
    assert verdict.status is Status.REJECTED
    assert [f.code for f in verdict.findings if f.severity.value == "hard"] == ["no_kernel_launch"]


def test_a_problem_without_a_second_telling_call_is_asked_apart(asking):
    # All that is not negative stays as it is: the own inputs tell nothing.
    copying = problem("return torch.relu(x)", "torch.rand(37, 131)", name="copying")
    source = TRITON_SOURCE.replace("self, x, b", "self, x").replace("* 2 + bias", "")
    source = source.replace("(x, b, out, n, x.s", "(x, x[0], out, n, x.s")
    verdict = asking.evaluate(copying, Kernel(source, "triton"))
    assert verdict.correct and verdict.custom_share == 1.0, verdict
