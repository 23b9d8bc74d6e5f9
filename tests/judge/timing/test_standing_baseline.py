"""A reference's process that is slow to start stays for its problem's next kernel, and no other."""

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
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Problem, Status

RULES = RULESETS["strict"]
GONE = Rejected(Status.RUNTIME_ERROR, "it is gone")


class Process:
    """A reference's process that writes down what it is asked, and fails where it is told to."""

    def __init__(self):
        self.asked, self.fails, self.ended = [], "", False
        self.compiled, self.agrees, self.references = (0, 1), True, []
        self.channel = self.model = self.buffers = self  # it plays its parts itself

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
        yield made[-1]
        made[-1].ended = True

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


def use(baselines, name="a", **more):
    with ExitStack() as stack:
        session, kind = baselines.start(stack, reference(name, **more))
        assert kind in ("start" if more.get("start") else "eager", "compile")
        return session


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
    use(baselines, "b", start=Kernel("# kernel", "triton"))
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
    assert use(compiling) is use(compiling, secret="07e4")
    (process,) = made
    assert process.runs == ("torch", "# a", True) and not process.ended
    ready = ["call", "call", "compilation", "vacate"]
    rest = ["resume", "vacate", "pause"]
    again = ["grant", "resume", "construct", *ready, *rest]
    assert process.asked == ["grant", "load", "await_load", "construct", *ready, *rest, *again]
    use(compiling, "b")
    assert process.ended and len(made) == 2


def test_stateful_one_is_warmed_up_by_a_second_reference(compiling, made, monkeypatch):
    monkeypatch.setattr(compiling, "_reference", lambda *_: reference("a", stateful=True))
    first = use(compiling, stateful=True)
    assert use(compiling, stateful=True) is first
    (built, *called), (again, *more) = first.references[:3], first.references[3:]
    assert built is called[0] is called[1] and again is more[0] is more[1] and built is not again


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({"compiled": (0, 2)}, id="torch compiled a frame again"),
        pytest.param({"compiled": (1, 1)}, id="a graph was missing"),
        pytest.param({"agrees": False}, id="it computes something else"),
        pytest.param({"fails": "call"}, id="it fails"),
    ],
)
def test_compiled_one_that_does_not_fit_any_more_is_replaced(compiling, made, now):
    first = use(compiling)
    for name, value in now.items():
        setattr(first, name, value)
    second = use(compiling, secret="07e4")
    assert first.ended and made == [first, second] and not second.ended


def test_the_faster_of_two_is_chosen_once(opened, tmp_path, made, monkeypatch):
    timing = dataclasses.replace(RULES.timing, baseline="best")
    rules = dataclasses.replace(RULES, timing=timing)
    races = []

    class Race:
        def __init__(self, *_):
            races.append(self)

        def race(self, pairs):
            return 2.0, 1.0

    monkeypatch.setattr(baselines_module, "Stopwatch", Race)
    monkeypatch.setattr(baselines_module, "LiveRun", lambda *_: None)
    BaselineStore(tmp_path, rules, "device").keep(reference("a").problem, b"kept")
    best = opened(rules)
    compiled = use(best)
    assert use(best, secret="07e4") is compiled and len(races) == 1
    assert [each.runs[2] for each in made] == [True, False]
    assert "end" in made[1].asked and "end" not in compiled.asked
