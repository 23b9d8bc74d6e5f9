"""Sides of a timing that are made up: windows take what they are told to, without a process."""

import torch

from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.memory.slots import TimedWindow
from kernelgym.judge.processes.threads import RunTimes
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.timing.measure import Stopwatch
from kernelgym.rulesets import TimingProtocol

CUDA = torch.device("cuda", 0)
SHAPE = (256, 256)
OVERHEAD_MS, LAYOUT_MS = 2.0, 4.0


class Side:
    """A session whose windows take what they are told to, and that writes down what it is asked."""

    def __init__(self, call_ms, claims=None, captures=True, device=CUDA, layout_ms=LAYOUT_MS):
        self.device, self.protocol, self.as_layer = device, TimingProtocol(), False
        self.call_ms, self.claims = call_ms, claims or (lambda ms: ms)
        self.late_ms = None  # time of a call whose inputs are written just before; None: call_ms
        self.captures, self.layout_ms = captures, layout_ms
        self.example = ([torch.empty(SHAPE, device="meta")], torch.empty(SHAPE, device="meta"))
        self.asked, self.kept, self.slots, self.running = [], [], 0, True
        self.outcome = OutputComparison(True)
        self.refuses, self.alone = None, False
        self.graph, self.graph_is_empty = False, False
        self.around, self.near, self.lesson = {}, True, None
        self.jitter, self.must_launch = iter(()), 0
        self.waking_ms = self.fresh_ms = self.copied_ms = 0.0
        self.is_fresh = False
        self.waits = iter(())  # share of each window that its only thread waits; None: not told
        self.channel = self.buffers = self  # it plays its parts itself

    def distrust(self, other):
        self.asked.append(("distrust", other))

    def reserve(self, inputs, output, count, timed=False):
        assert self.running and timed
        self.slots, self.graph, self.is_fresh = count, False, True
        self.asked.append(("reserve", count))

    def copy_ms(self):
        return self.copied_ms

    def vacate(self):
        assert self.running
        self.slots = 0
        self.asked.append(("vacate",))

    def pause(self):
        self.running = False

    def resume(self):
        self.running = True

    def run_times(self):
        return None

    def threads(self):
        return 1

    def alike(self, inputs):
        return True

    def capture(self, tells=False, late=False, change_at=0):
        assert self.running
        self.tells = tells
        self.asked.append(("capture", self.captures))
        self.graph = self.captures
        return self.captures

    def timed_run(self, batches, forward_seeds, keep, others=0, late=None):
        assert late in (None, *keep)
        assert not self.running and self.slots >= len(batches)
        if self.refuses:
            raise self.refuses
        calls = len(batches)
        call_ms = self.call_ms if late is None else self.late_ms or self.call_ms
        window_ms = OVERHEAD_MS + calls * call_ms + next(self.jitter, 0.0)
        if calls:  # what no empty window takes, and what calls on new slots take
            window_ms += self.waking_ms + calls * (self.fresh_ms if self.is_fresh else 0.0)
            self.is_fresh = False
        on_device = self.device.type == "cuda"
        claimed_ms = self.claims(calls * call_ms) if on_device else 0.0
        self.kept.append(list(keep))
        self.must_launch += calls - others
        results = [{"tensor": ["float32", list(SHAPE)]}] * calls
        layout_ms = self.layout_ms if on_device else 0.0
        kept = {index: [] for index in keep}
        share = None if on_device else next(self.waits, 0.0)
        told = RunTimes(0, {"1": (0, int((share or 0.0) * window_ms * 1e6))})
        counts = (None, None) if share is None else (RunTimes(0, {}), told)
        return TimedWindow(window_ms, claimed_ms, layout_ms, results, kept, counts)

    def compare(self, index, inputs, outputs, result, expected):
        self.asked.append(("compare", index))
        if self.graph and self.graph_is_empty:
            return OutputComparison(False, message="stale values")
        return self.outcome

    def learn(self, reference, expected):
        if self.lesson is not None:
            self.around[GIVEN] = self.lesson

    def resembles(self, index, inputs, outputs, result, references, around):
        assert around in self.around.values()
        self.asked.append(("resembles", index))
        return self.near


class Reference:
    """Draws nothing and expects anything."""

    def __init__(self, stateful=False, draws=False, secret="5ec2e7", telltales=()):
        self.stateful, self.draws = stateful, draws
        self.seeds, self.drawn, self.kinds = Seeds(secret), [], []
        self.telltales, self.bearable = telltales, True
        self.usable_kinds = telltales
        self.state, self.renewals, self.undone = {}, 0, 0

    def renew_state(self):
        self.renewals += 1

    def undo_renewal(self):
        self.undone += 1

    def inputs_for_timing(self, seed, kind):
        self.drawn.append(seed)
        self.kinds.append(kind)
        return [torch.empty(SHAPE, device="meta")]

    def expect(self, inputs, seed, kind):
        return kind

    def bears(self, expected):
        return self.bearable


def timed(kernel, baseline, reference=None):
    watch = Stopwatch([LiveRun(None, reference or Reference(), kernel)], baseline)
    (measured,) = watch.measure()
    return measured, watch


def cleaned(watch, measured):
    """Return one kernel's measurement beside the reference alone, and the reference's time."""
    (found,), alone_ms = watch.clean([measured])
    return found, alone_ms
