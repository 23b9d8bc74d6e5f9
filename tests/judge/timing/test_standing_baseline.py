"""A reference's process that is kept serves the next kernel of its problem, and nothing else."""

import contextlib
import dataclasses
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.stage_clock import StageClock
from kernelgym.judge.timing import baselines as baselines_module
from kernelgym.judge.timing.baseline_store import BaselineStore
from kernelgym.judge.timing.baselines import Baselines
from kernelgym.judge.timing.windows import Untimed
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Problem, Status

RULES = RULESETS["strict"]
GONE = Rejected(Status.RUNTIME_ERROR, "it is gone")


class Process:
    """A reference's process that writes down what it is asked, and fails where it is told to."""

    fails = ""

    def __init__(self):
        self.asked, self.ended = [], False
        self.compiled, self.agrees, self.references = (0, 1), True, []
        self.channel = self.model = self.buffers = self  # it plays its parts itself

    def end_seen(self):
        """Called when the process has ended."""

    def __getattr__(self, name):
        def ask(*given, **_):
            self.asked.append(name)
            if name in ("construct", "call"):
                self.references.append(given[0])
            if name == self.fails:
                raise GONE
            return {"compilation": self.compiled, "call": OutputComparison(self.agrees)}.get(name)

        return ask


@pytest.fixture
def made():
    return []


@pytest.fixture
def opened(tmp_path, made):
    @contextlib.contextmanager
    def open_process(language, source, exec_allowed):
        made.append(Process())
        made[-1].runs = language, source, exec_allowed
        process = made[-1]
        yield process
        process.ended = True
        process.end_seen()

    def opened(rules=RULES, device="cuda:0"):
        device_lock = DeviceLock(tmp_path / "lock", StageClock())
        store = BaselineStore(tmp_path, rules, "device")
        return Baselines(store, rules, device, device_lock, open_process)

    return opened


@pytest.fixture
def baselines(opened):
    return opened()


@pytest.fixture(params=["cpu", "cuda:0"])
def compiling(opened, tmp_path, request):
    timing = dataclasses.replace(RULES.timing, baseline="compile")
    rules = dataclasses.replace(RULES, timing=timing)
    for name in ("a", "b"):
        BaselineStore(tmp_path, rules, "device").keep(reference(name).problem, b"kept")
    return opened(rules, request.param)


def reference(name, secret="5ec2e7", stateful=False, state=(), start=None):
    problem = Problem(f"Test/{name}", "Test", 1, name, f"# {name}")
    more = {"stateful": stateful, "state": dict.fromkeys(state), "start": start, "plan": ()}
    return SimpleNamespace(problem=problem, seeds=Seeds(secret), **more)


def use(baselines, name="a", kind="eager", **more):
    with ExitStack() as stack:
        session, found = baselines.start(stack, reference(name, **more))
        assert found == kind
        return session


def use_compiled(baselines, name="a", **more):
    return use(baselines, name, "compile", **more)


def test_it_is_constructed_anew_for_every_kernel_and_rests_between(baselines, made):
    assert use(baselines) is use(baselines, secret="07e4")
    (process,) = made
    rest = ["resume", "vacate", "pause"]
    first = ["grant", "load", "await_load", "construct"]
    assert process.asked == [*first, *rest, "grant", "resume", "construct", *rest]
    assert not process.ended


@pytest.mark.parametrize(
    ("more", "builds"),
    [({}, 1), ({"stateful": True}, 3), ({"state": ("weight",)}, 3)],
)
def test_from_the_same_seed_it_is_built_once_where_it_stays_as_it_was(
    baselines, made, more, builds
):
    for secret in ("", "", ""):
        use(baselines, secret=secret, **more)
    (process,) = made
    assert process.asked.count("construct") == builds
    use(baselines, secret="5ec2e7", **more)
    assert process.asked.count("construct") == builds + 1


def test_one_that_failed_to_be_built_anew_is_not_taken_for_built(baselines, made):
    use(baselines)
    made[0].fails = "construct"
    use(baselines, secret="07e4")
    use(baselines, secret="07e4")
    assert made[0].ended and made[1].asked.count("construct") == 1


def test_starting_kernel_is_timed_in_its_own_language(baselines, made):
    use(baselines)
    use(baselines, "b", "start", start=Kernel("# kernel", "triton"))
    assert [each.runs for each in made] == [("torch", "# a", False), ("triton", "# kernel", False)]


def test_another_problem_gets_another_process(baselines, made):
    use(baselines, "a")
    use(baselines, "b")
    assert [process.ended for process in made] == [True, False]


@pytest.mark.parametrize("where", ["construct", "vacate", "pause"])
def test_one_that_fails_is_replaced(baselines, made, where):
    process = use(baselines)
    process.fails = where
    use(baselines, secret="07e4")
    use(baselines, secret="07e4")
    assert made[0].ended and len(made) == 2 and not made[1].ended


def test_a_kernels_failure_leaves_it_standing(baselines, made):
    with pytest.raises(Rejected), ExitStack() as stack:
        baselines.start(stack, reference("a"))
        raise Rejected(Status.WRONG, "the kernel's own fault")
    use(baselines)
    assert len(made) == 1


def test_dismissal_ends_it(baselines, made):
    use(baselines)
    baselines.dismiss()
    baselines.dismiss()
    assert made[0].ended
    use(baselines)
    assert len(made) == 2


def test_compiled_one_is_called_again_before_it_is_timed(compiling, made):
    assert use_compiled(compiling) is use_compiled(compiling, secret="07e4")
    (process,) = made
    assert process.runs == ("torch", "# a", True) and not process.ended
    ready = ["call", "call", "compilation", "vacate"]
    rest = ["resume", "vacate", "pause"]
    again = ["grant", "resume", "construct", *ready, *rest]
    assert process.asked == ["grant", "load", "await_load", "construct", *ready, *rest, *again]
    use_compiled(compiling, "b")
    assert process.ended and len(made) == 2


def test_starting_kernel_ends_the_process_of_another_problem(compiling, made):
    use_compiled(compiling)
    use(compiling, "b", "start", start=Kernel("# kernel", "triton"))
    assert made[0].ended and made[1].runs == ("triton", "# kernel", False)


def test_stateful_one_is_warmed_up_by_a_second_reference(compiling, monkeypatch):
    seconds, given = [], [reference("a", stateful=True) for _ in range(2)]

    def second(*_):
        seconds.append(reference("a", stateful=True))
        return seconds[-1]

    monkeypatch.setattr(compiling, "_reference", second)
    for each in given:
        with ExitStack() as stack:
            session, _ = compiling.start(stack, each)
    for number, each in enumerate(seconds):
        assert all(seen is each for seen in session.references[3 * number : 3 * number + 3])
    assert len(seconds) == 2 and len(session.references) == 6


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({"compiled": (0, 2)}, id="torch compiled a frame again"),
        pytest.param({"compiled": (1, 1)}, id="a graph was missing"),
        pytest.param({"agrees": False}, id="it computes something else"),
        pytest.param({"fails": "call"}, id="it fails"),
        pytest.param({"fails": "vacate"}, id="its memory cannot be freed"),
    ],
)
def test_compiled_one_that_does_not_fit_any_more_is_replaced(compiling, made, now):
    first = use_compiled(compiling)
    for name, value in now.items():
        setattr(first, name, value)
    second = use_compiled(compiling, secret="07e4")
    assert first.ended and made == [first, second] and not second.ended


@pytest.mark.parametrize("where", ["load", "construct", "call", "compilation", "vacate"])
def test_failure_of_a_compiled_one_is_not_the_kernels(compiling, made, where, monkeypatch):
    monkeypatch.setattr(Process, "fails", where, raising=False)
    with pytest.raises(Untimed, match="it is gone"):
        use_compiled(compiling)
    assert [process.ended for process in made] == [True]


@pytest.mark.parametrize(("times", "faster"), [((2.0, 1.0), "compile"), ((1.0, 2.0), "eager")])
def test_the_faster_of_two_is_chosen_once(opened, tmp_path, made, monkeypatch, times, faster):
    timing = dataclasses.replace(RULES.timing, baseline="best")
    rules = dataclasses.replace(RULES, timing=timing)
    races = []

    class Race:
        def __init__(self, *_):
            races.append(self)

        def race(self, pairs):
            return times

    monkeypatch.setattr(baselines_module, "Stopwatch", Race)
    monkeypatch.setattr(baselines_module, "LiveRun", lambda *_: None)
    BaselineStore(tmp_path, rules, "device").keep(reference("a").problem, b"kept")
    best = opened(rules)
    chosen = use(best, kind=faster)
    assert use(best, kind=faster, secret="07e4") is chosen and len(races) == 1
    compiled, eager = made
    assert (compiled.runs[2], eager.runs[2]) == (True, False)
    assert [each.ended for each in made] == [each is not chosen for each in made]


def test_preparing_anew_ends_the_one_that_is_kept(compiling, made, monkeypatch):
    first = use_compiled(compiling)
    monkeypatch.setattr(compiling, "_compile", lambda *_: b"new")
    monkeypatch.setattr(compiling, "_times", lambda *_: (2.0, 1.0))
    assert compiling.prepare(reference("a").problem, refresh=True).prepared
    assert first.ended and use_compiled(compiling) is not first


def test_processes_on_a_gpu_end_while_no_kernel_is_timed(opened, monkeypatch):
    baselines, held = opened(), []
    lock = baselines._device_lock
    monkeypatch.setattr(
        Process, "end_seen", lambda self: held.append(lock.is_shared), raising=False
    )
    use(baselines, "a")
    use(baselines, "b")
    assert held == [True]
