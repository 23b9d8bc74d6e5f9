"""On a GPU the reference's process stays for the next kernel of its problem, and for no other."""

import contextlib
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.stage_clock import StageClock
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
        self.channel = self.model = self.buffers = self  # it plays its parts itself

    def __getattr__(self, name):
        def ask(*_):
            self.asked.append(name)
            if name == self.fails:
                raise GONE

        return ask


@pytest.fixture
def made():
    return []


@pytest.fixture
def baselines(tmp_path, made):
    @contextlib.contextmanager
    def open_process(language, source, exec_allowed):
        made.append(Process())
        made[-1].runs = language, source, exec_allowed
        yield made[-1]
        made[-1].ended = True

    device_lock = DeviceLock(tmp_path / "lock", StageClock())
    return Baselines(
        BaselineStore(tmp_path, RULES, "gpu"), RULES, "cuda:0", device_lock, open_process
    )


def reference(name, secret="5ec2e7", stateful=False, state=(), start=None):
    problem = Problem(f"Test/{name}", "Test", 1, name, f"# {name}")
    more = {"stateful": stateful, "state": dict.fromkeys(state), "start": start}
    return SimpleNamespace(problem=problem, seeds=Seeds(secret), **more)


def use(baselines, name="a", **more):
    with ExitStack() as stack:
        session, kind = baselines.start(stack, reference(name, **more))
        assert kind == ("start" if more.get("start") else "eager")
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
