"""What kernels built for finite numbers make of a NaN: a finding, never a verdict."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import JudgeError
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.evidence.finite_math import lost_nan, with_nan
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import JudgedCase, Rerun
from kernelgym.rulesets import RULESETS
from kernelgym.types import Severity, Status
from support.programs import AFFINE, CPP, TIGHT, problem, replaced

RULES = dataclasses.replace(RULESETS["strict"], ask_nan=True, limits=TIGHT)
SEEDS = Seeds("5eed")


@given(st.integers(0, 2**62), st.lists(st.integers(0, 5), max_size=3))
def test_each_floating_tensor_gets_one_nan(seed, shape):
    given_inputs = [torch.zeros(shape), torch.zeros(shape, dtype=torch.int64), 2.5]
    floats, integers, number = with_nan(given_inputs, seed)
    assert int(floats.isnan().sum()) == min(1, floats.numel())
    assert not given_inputs[0].isnan().any()
    assert integers is given_inputs[1] and number == 2.5


def _asked(answer, judged=AFFINE, probe=lambda: None):
    """Return the finding on a kernel that gives `answer(inputs)`."""

    def answered(inputs, expected, forward_seed):
        return "fits", [answer(*inputs)]

    model = SimpleNamespace(
        load=lambda *_: None, await_load=lambda: None, construct=lambda reference: None
    )
    session = SimpleNamespace(model=model, answered=answered)
    reference = Reference(judged, RULES, SEEDS)
    reference.prepare()
    case = JudgedCase(judged, CPP, RULES, SEEDS)
    return lost_nan(Rerun(case, lambda: contextlib.nullcontext(session), lambda: reference), probe)


def test_a_kernel_that_keeps_nan_gives_no_finding():
    assert _asked(lambda x, b: torch.relu(x) * 2 + b) is None


def test_a_kernel_that_drops_nan_gives_a_soft_finding():
    found = _asked(lambda x, b: torch.relu(x.nan_to_num()) * 2 + b)
    assert (found.code, found.severity) == ("nan_not_propagated", Severity.SOFT)
    assert " 1 elements " in found.message


def test_a_kernel_that_fails_on_nan_gives_a_finding():
    def fail(*_):
        raise Rejected(Status.RUNTIME_ERROR, "index out of range")

    found = _asked(fail)
    assert found.severity is Severity.SOFT and "index out of range" in found.message


@pytest.mark.parametrize("error", [Rejected(Status.RUNTIME_ERROR, "crash"), JudgeError("lost")])
def test_the_device_is_probed_after_a_failure(error):
    probed = []

    def fail(*_):
        raise error

    found = _asked(fail, probe=lambda: probed.append(True))
    assert probed == [True] and (found is None) is isinstance(error, JudgeError)


def test_a_problem_that_refuses_nan_gives_no_finding():
    strict_problem = problem("assert x.isfinite().all()\nreturn x.relu()", "torch.randn(20, 30)")
    assert _asked(lambda x: x.nan_to_num().relu(), strict_problem) is None


HEADER = 'SOURCE = """'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ("-O2", "-Ofast", True),
        (HEADER, f'{HEADER}#pragma GCC optimize("fast-math")', True),
        ("-O2", "-O3", False),
    ],
)
def test_only_kernels_built_by_fast_math_are_asked(before, after, asked, cache_dir):
    kernel = replaced(CPP, before, after)
    with LocalEvaluator(ruleset=RULES, cache_dir=cache_dir, timing=False) as evaluator:
        verdict = evaluator.evaluate(AFFINE, kernel)
    assert verdict.correct, verdict.message
    assert ("nan_not_propagated" in [f.code for f in verdict.findings]) == asked
