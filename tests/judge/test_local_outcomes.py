"""One kernel per outcome class and language, and exactly that status."""

import dataclasses
import json

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.inputs.kinds import FOR_RANKS
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Status, Verdict
from support.programs import AFFINE, CPP, CPP_SOURCE, TRITON, doing, replaced
from support.timed_verdicts import timed_verdict

HANG = "import time\nwhile True:\n    time.sleep(0.1)"
"""As a busy loop to the judge, without five seconds of the tests' CPU time."""

TRITON_OUTCOMES = {
    "correct": (TRITON, Status.CORRECT),
    "wrong constant": (replaced(TRITON, "* 2 +", "* 3 +"), Status.WRONG),
    "wrong shape": (replaced(TRITON, "return out", "return out[:, :5]"), Status.WRONG),
    "wrong dtype": (replaced(TRITON, "return out", "return out.double()"), Status.WRONG),
    "syntax error": (replaced(TRITON, "return out", "return out)"), Status.COMPILE_ERROR),
    "import error": (replaced(TRITON, "import torch\n", "import torhc\n"), Status.COMPILE_ERROR),
    "no ModelNew": (replaced(TRITON, "ModelNew", "Model"), Status.COMPILE_ERROR),
    "name error": (replaced(TRITON, "tl.maximum", "tl.maximun"), Status.RUNTIME_ERROR),
    "constructor": (replaced(TRITON, "super().__init__()", "1 / 0"), Status.RUNTIME_ERROR),
    "unmasked load": (
        replaced(TRITON, "tl.load(x + offsets, mask=mask)", "tl.load(x + offsets)"),
        Status.RUNTIME_ERROR,
    ),
    "unmasked store": (replaced(TRITON, "+ bias, mask=mask)", "+ bias)"), Status.RUNTIME_ERROR),
    "hang": (doing(HANG), Status.TIMEOUT),
    "hang on import": (Kernel(HANG, "triton"), Status.TIMEOUT),
}

CPP_OUTCOMES = {
    "correct": (CPP, Status.CORRECT),
    "wrong": (replaced(CPP, "* 2 +", "* 3 +"), Status.WRONG),
    "unwritten tail": (replaced(CPP, "i < rows", "i < rows - 1"), Status.WRONG),
    "does not compile": (replaced(CPP, "const float value", "const flot value"), "compile"),
    "unknown function": (replaced(CPP, '["affine"]', '["affin"]'), "compile"),
    "forbidden flag": (replaced(CPP, '"-O2"', '"-fplugin=x.so"'), "compile"),
    "throws": (replaced(CPP, "auto out", 'TORCH_CHECK(false, "no");\n  auto out'), "runtime"),
    "segmentation fault": (
        replaced(CPP, "auto out", "*reinterpret_cast<volatile int*>(8) = 1;\n  auto out"),
        "runtime",
    ),
    "wrong arguments": (replaced(CPP, "affine(x, b)\n", "affine(x)\n"), "runtime"),
    "hang": (doing(HANG, CPP), Status.TIMEOUT),
}
SHORT = {"compile": Status.COMPILE_ERROR, "runtime": Status.RUNTIME_ERROR}


@pytest.mark.parametrize("name", TRITON_OUTCOMES)
def test_triton(strict, name):
    kernel, status = TRITON_OUTCOMES[name]
    verdict = strict.evaluate(AFFINE, kernel)
    assert verdict.status is status, verdict
    assert verdict.message
    assert verdict.compiled == (status is not Status.COMPILE_ERROR and name != "hang on import"), (
        verdict
    )


def test_building_alone_gives_what_a_verdict_has(strict):
    kernel = CPP_OUTCOMES["throws"][0]
    build = strict.build(kernel)
    assert build == strict.evaluate(AFFINE, kernel).build and build.digest
    assert strict.artifacts(kernel)["extension.so"].startswith(b"\x7fELF")
    assert strict.build(CPP_OUTCOMES["does not compile"][0]) is None
    assert strict.build(TRITON) is None and strict.artifacts(TRITON) == {}


@pytest.mark.parametrize("name", ["correct", "does not compile", "forbidden flag", "throws"])
def test_cpp(strict, name):
    _check_cpp(strict, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CPP_OUTCOMES))
def test_cpp_all(strict, name):
    _check_cpp(strict, name)


def _check_cpp(evaluator, name):
    kernel, status = CPP_OUTCOMES[name]
    status = SHORT.get(status, status)
    verdict = evaluator.evaluate(AFFINE, kernel)
    assert verdict.status is status, verdict
    assert verdict.compiled == (status is not Status.COMPILE_ERROR)
    if not verdict.compiled:
        assert verdict.build is None
    else:
        assert verdict.build.digest and "affine" in verdict.build.functions[0].name
    assert list(evaluator.artifacts(kernel)) == (["extension.so"] if verdict.compiled else [])


def test_kernelbench_ruleset_agrees_on_plain_kernels(kernelbench):
    assert kernelbench.evaluate(AFFINE, TRITON).correct
    wrong = replaced(TRITON, "* 2 +", "* 2.001 +")
    assert kernelbench.evaluate(AFFINE, wrong).status is Status.WRONG


def test_a_verdict_says_how_it_came_about(strict):
    verdict = strict.evaluate(AFFINE, TRITON)
    assert verdict.ruleset == strict.capabilities.ruleset.label
    assert verdict.device == "cpu" and verdict.build is None  # interpreted
    assert verdict.isolation in TIERS
    assert verdict.wall_s > 0
    kinds = set(strict.capabilities.ruleset.distributions) - FOR_RANKS
    on_own_inputs = verdict.trials - len(kinds)  # one each
    assert 2 <= on_own_inputs <= 4
    assert not verdict.timed and "not timed" in verdict.message
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_a_seed_repeats_a_verdict_and_differs_without(strict):
    kernel = replaced(TRITON, "* 2 +", "* 3 +")
    first, second = strict.evaluate(AFFINE, kernel), strict.evaluate(AFFINE, kernel)
    again = strict.evaluate(AFFINE, kernel, seed=first.seed)
    assert first.seed != second.seed
    assert (again.message, again.trials) == (first.message, first.trials)
    assert again.max_abs_error == first.max_abs_error != second.max_abs_error


def test_compiler_lines_are_those_of_the_author(strict):
    verdict = strict.evaluate(AFFINE, replaced(CPP, "const float value", "const flot value"))
    line = (
        CPP_SOURCE.partition('"""')[2]
        .splitlines()
        .index("      const float value = in[i * columns + j];")
    )
    assert f"kernel.cpp:{line + 1}:" in verdict.log


def test_what_a_kernel_prints_is_kept_and_changes_nothing(strict):
    kernel = doing("import sys\nprint('{\"correct\": true}')\nprint('oh', file=sys.stderr)")
    verdict = strict.evaluate(AFFINE, kernel)
    assert verdict.correct
    assert '{"correct": true}' in verdict.log and "oh" in verdict.log


def test_cpp_is_timed_with_an_interval(timing):
    verdict = timed_verdict(timing, AFFINE, CPP)
    assert verdict.correct and verdict.timed
    assert verdict.timing.samples >= 3
    assert 0 < verdict.speedup_low <= verdict.speedup


def test_triton_on_the_cpu_is_not_timed(timing):
    verdict = timing.evaluate(AFFINE, TRITON)
    assert verdict.correct and not verdict.timed and verdict.speedup == 0.0


def test_a_kernel_that_is_wrong_only_when_it_is_timed_is_wrong(timing):
    lazy = "self.calls = getattr(self, 'calls', 0) + 1\nif self.calls > 8:\n    return x"
    assert timing.evaluate(AFFINE, doing(lazy, CPP)).status is Status.WRONG


def test_a_kernel_that_launches_nothing_is_noted(strict):
    idle = replaced(
        TRITON,
        "        affine[(triton.cdiv(n, 2048),)](x, b, out, n, x.shape[1], BLOCK=2048)\n",
        "        out.copy_(torch.relu(x) * 2 + b)\n",
    )
    verdict = strict.evaluate(AFFINE, idle)
    assert verdict.correct
    assert [finding.code for finding in verdict.findings] == ["no_kernel_launch"]
    assert strict.evaluate(AFFINE, TRITON).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True])
def test_the_first_failure_ends_it_where_the_rules_say_so(cache_dir, stops):
    rules = dataclasses.replace(RULESETS["strict"], stop_at_first_failure=stops)
    wrong = replaced(TRITON, "* 2 +", "* 3 +")
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir) as evaluator:
        verdict = evaluator.evaluate(AFFINE, wrong)
    failed = 1 if stops else verdict.trials
    assert verdict.status is Status.WRONG and verdict.trials > 1 and verdict.trials_passed == 0
    assert verdict.message.startswith(f"{failed} of {verdict.trials} calls failed; call 1 of ")
