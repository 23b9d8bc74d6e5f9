"""Compiled baselines: what they are kept by, how verdicts choose, and one from end to end."""

import contextlib
import dataclasses
import shlex

import pytest

from kernelgym.baseline import Baseline, command_for
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.stage_clock import StageClock
from kernelgym.judge.timing import baseline_store, baselines
from kernelgym.judge.timing.baseline_store import BaselineStore
from kernelgym.judge.timing.baselines import Baselines
from kernelgym.judge.timing.windows import Untimed
from kernelgym.rulesets import RULESETS, Limits, precise_rules
from kernelgym.types import Kernel, Status
from support.programs import problem

STRICT = RULESETS["strict"]
PROBLEM = problem(
    "return torch.nn.functional.gelu(x * 2 + b).sigmoid()",
    "torch.randn(64, 512), torch.randn(512)",
    arguments="x, b",
    name="chain",
)
OTHER = problem("return torch.relu(x)", "torch.randn(64, 512)")


def rules(baseline, **changes):
    timing = dataclasses.replace(STRICT.timing, baseline=baseline)
    return dataclasses.replace(STRICT, timing=timing, **changes)


def test_baselines_are_kept_by_what_decides_them(tmp_path):
    own = BaselineStore(tmp_path, STRICT, "device")
    assert BaselineStore(tmp_path, rules("best", name="mine"), "device").path(PROBLEM) == own.path(
        PROBLEM
    )
    others = [
        own.path(OTHER),
        BaselineStore(tmp_path, STRICT, "another device").path(PROBLEM),
        BaselineStore(tmp_path, dataclasses.replace(STRICT, precision="bf16"), "device").path(
            PROBLEM
        ),
        BaselineStore(tmp_path, dataclasses.replace(STRICT, tf32="torch"), "device").path(PROBLEM),
    ]
    assert len({own.path(PROBLEM), *others}) == 5


def test_what_is_kept_is_found_and_replaced(tmp_path):
    kept = BaselineStore(tmp_path / "not there yet", STRICT, "device")
    assert kept.find(PROBLEM) is None
    for content in (b"one", b"two"):
        kept.keep(PROBLEM, content)
        assert kept.find(PROBLEM) == content
    assert kept.find(OTHER) is None
    assert len(list((tmp_path / "not there yet").iterdir())) == 1


def test_a_library_of_another_version_does_not_find_it(tmp_path, monkeypatch):
    BaselineStore(tmp_path, STRICT, "device").keep(PROBLEM, b"old")
    monkeypatch.setattr(baseline_store, "_triton_version", lambda: "0.1")
    assert BaselineStore(tmp_path, STRICT, "device").find(PROBLEM) is None


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", sorted(RULESETS))
def test_the_command_prepares_what_the_ruleset_asks_for(tmp_path, name, precision):
    wanted = dataclasses.replace(RULESETS[name], name="mine", precision=precision)
    words = shlex.split(command_for(PROBLEM.id, wanted, "cuda:1"))
    assert words[:3] == ["kernelgym", "baseline", PROBLEM.id]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options.pop("--device") == "cuda:1"
    prepared = precise_rules(options.pop("--ruleset"), options.pop("--precision", ""))
    assert not options
    paths = [BaselineStore(tmp_path, each, "device").path(PROBLEM) for each in (prepared, wanted)]
    assert paths[0] == paths[1]


class Model:
    """Stands in for a `Reference`."""

    stateful, plan, problem, seeds, start, state = False, (), PROBLEM, Seeds("ab"), None, {}


class Process:
    """Stands in for a `Session` of the reference's."""

    def __init__(self, exec_allowed, misses, agrees, fails):
        self.exec_allowed, self._misses, self._agrees, self._fails = (
            exec_allowed, misses, agrees, fails,
        )  # fmt: skip
        self.packed, self.compiles, self.ended = None, False, False
        self.channel = self.model = self.buffers = self  # it plays its parts itself

    def load(self, source, entry, packed=b"", compiles=False):
        assert (source, entry) == (PROBLEM.source, "Model")
        assert compiles == self.exec_allowed  # and no other process may start programs
        self.packed, self.compiles = packed, compiles

    def call(self, *_):
        if self._fails:
            raise Rejected(Status.TIMEOUT, "no answer")
        return OutputComparison(self._agrees, message="" if self._agrees else "it is off")

    def compilation(self, save=False):
        return self._misses, 1

    def __getattr__(self, name):
        assert name in ("grant", "await_load", "construct", "vacate", "resume", "pause")
        return lambda *_: None


class Bench:
    """`Baselines` over stand-ins."""

    def __init__(self, folder, monkeypatch, baseline, times=(2.0, 1.0), **process):
        self.opened, process = [], {"misses": 0, "agrees": True, "fails": False, **process}

        class Race:
            def __init__(self, runs, baseline):
                assert runs[0].session.compiles and not baseline.compiles

            def race(self, pairs):
                return times

        @contextlib.contextmanager
        def open_process(language, source, exec_allowed):
            assert language == "torch"
            made = Process(exec_allowed, **process)
            self.opened.append(made)
            yield made
            made.ended = True

        monkeypatch.setattr(baselines, "Stopwatch", Race)
        self.kept = BaselineStore(folder, STRICT, "device")
        device_lock = DeviceLock(folder / "lock", StageClock())
        self._all = Baselines(self.kept, rules(baseline), "cpu", device_lock, open_process)

    def start(self):
        with contextlib.ExitStack() as stack:
            return self._all.start(stack, Model())


@pytest.mark.parametrize("baseline", ["compile", "best"])
def test_without_a_prepared_baseline_a_verdict_says_what_to_run(tmp_path, monkeypatch, baseline):
    bench = Bench(tmp_path, monkeypatch, baseline)
    with pytest.raises(Untimed, match=command_for(PROBLEM.id, STRICT, "cpu")):
        bench.start()
    assert not bench.opened  # least of all is anything compiled


def test_an_eager_baseline_is_never_compiled(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, "eager")
    bench.kept.keep(PROBLEM, b"kept")
    session, kind = bench.start()
    assert kind == "eager" and [session] == bench.opened and not session.exec_allowed


def test_a_compiled_baseline_takes_what_is_kept(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, "compile", times=(1.0, 2.0))
    bench.kept.keep(PROBLEM, b"kept")
    session, kind = bench.start()
    assert kind == "compile" and [session] == bench.opened and session.packed == b"kept"


@pytest.mark.parametrize(("times", "faster"), [((2.0, 1.0), "compile"), ((1.0, 2.0), "eager")])
def test_the_best_baseline_is_the_faster_one(tmp_path, monkeypatch, times, faster):
    bench = Bench(tmp_path, monkeypatch, "best", times)
    bench.kept.keep(PROBLEM, b"kept")
    session, kind = bench.start()
    assert kind == faster and session.compiles == (faster == "compile")
    assert [each.ended for each in bench.opened] == [each is not session for each in bench.opened]
    assert len(bench.opened) == 2


@pytest.mark.parametrize(
    ("process", "said"),
    [
        ({"misses": 2}, "2 of the reference's graphs had to be compiled anew"),
        ({"agrees": False}, "computes something else: it is off"),
        ({"fails": True}, "cannot be compiled: no answer"),
    ],
)
def test_a_baseline_that_does_not_fit_is_not_used(tmp_path, monkeypatch, process, said):
    bench = Bench(tmp_path, monkeypatch, "best", **process)
    bench.kept.keep(PROBLEM, b"kept")
    with pytest.raises(Untimed, match=f"{said}.*--refresh"):
        bench.start()


def test_a_baseline_survives_json():
    made = Baseline("p", "cpu", 2.0, 1.0, True, "why")
    assert Baseline.from_dict(made.to_dict()) == made


KERNEL = Kernel(
    """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = '''
torch::Tensor chain(torch::Tensor x, torch::Tensor b) {
    return torch::sigmoid(torch::gelu(x * 2 + b));
}
'''
extension = load_inline(name="chain", cpp_sources=source, functions=["chain"])


class ModelNew(nn.Module):
    def forward(self, x, b):
        return extension.chain(x, b)
""",
    "cpp",
)


@pytest.mark.slow
def test_prepared_baselines_time_kernels(tmp_path):
    def evaluator(baseline):
        limits = Limits(build_s=300.0)
        chosen = rules(baseline, require_custom_kernel=False, limits=limits)
        return LocalEvaluator(ruleset=chosen, cache_dir=tmp_path)

    with evaluator("compile") as compiled:
        before = compiled.evaluate(PROBLEM, KERNEL)
        assert before.correct and before.timing is None
        assert command_for(PROBLEM.id, STRICT, "cpu") in before.message
        first = compiled.prepare_baseline(PROBLEM)
        assert first.prepared and first.eager_ms > 0 and first.compile_ms > 0, first
        assert compiled.prepare_baseline(PROBLEM).message == "was prepared before"
        after = compiled.evaluate(PROBLEM, KERNEL)
        assert after.correct and after.timing is not None, after
        assert after.timing.baseline == "compile"
        broken = problem("return torch.relu(x).nothing()", "torch.randn(4)")
        failed = compiled.prepare_baseline(broken)
        assert not failed.prepared and "nothing" in failed.message
    with evaluator("best") as best:
        chosen = best.evaluate(PROBLEM, KERNEL)
        assert chosen.timing is not None, chosen
        assert chosen.timing.baseline in ("eager", "compile")
