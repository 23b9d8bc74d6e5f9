"""Triton's front end: what it refuses is the kernel's error, what it takes is no matter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.evidence.front_end import with_texts
from kernelgym.types import Status
from support.interpreted import REFUSED, RELU, TAKEN, relu

PLAIN = REFUSED["plain_global"][0]


@pytest.mark.parametrize("name", TAKEN)
def test_kernel_that_a_gpu_compiles_passes(as_gpu, name):
    verdict = as_gpu.evaluate(RELU, TAKEN[name])
    assert verdict.status is Status.CORRECT, verdict.message
    assert verdict.checked_for == "cuda:90"


@pytest.mark.parametrize("name", REFUSED)
def test_kernel_that_no_gpu_compiles_is_an_error(as_gpu, name):
    kernel, message = REFUSED[name]
    verdict = as_gpu.evaluate(RELU, kernel)
    assert verdict.status is Status.RUNTIME_ERROR, verdict.message
    assert message in verdict.message
    assert verdict.trials_passed == 0


def test_refusal_says_line_and_target(as_gpu):
    verdict = as_gpu.evaluate(RELU, PLAIN)
    line = 1 + next(i for i, text in enumerate(PLAIN.source.splitlines()) if "v, LOW" in text)
    assert verdict.message.startswith("CompilationError: at ")
    assert f"(line {line}, in relu_kernel)" in verdict.message
    (finding,) = [each for each in verdict.findings if each.code == "front_end"]
    assert "relu_kernel" in finding.message and "cuda:90" in finding.message


@pytest.mark.slow
def test_unasked_front_end_takes_everything(kernelbench):
    verdict = kernelbench.evaluate(RELU, PLAIN)
    assert (verdict.status, verdict.checked_for) == (Status.CORRECT, "")


SWITCHES = {
    "recorder_removed": (
        "import triton.runtime.interpreter as i\n"
        "i.InterpretedFunction.run = i.InterpretedFunction.run.__closure__[1].cell_contents\n"
    ),
    "front_end_replaced": (
        "import triton.compiler.code_generator as g\n"
        "g.ast_to_ttir = lambda *a, **k: None\n"
        "import sys\n"
        "for name, module in list(sys.modules.items()):\n"
        "    if 'front_end' in name:\n"
        "        module.refusals = lambda *a: []\n"
    ),
    "text_forged": (
        "import inspect\n"
        "inspect.getsourcelines = lambda f: (['@triton.jit\\n', 'def relu_kernel(): pass\\n'], 7)\n"
    ),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_candidate_cannot_answer_for_the_front_end(as_gpu, name):
    kernel = relu("y = tl.maximum(v, LOW)", top=f"LOW = 0.0\n{SWITCHES[name]}")
    verdict = as_gpu.evaluate(RELU, kernel)
    assert verdict.status in (Status.RUNTIME_ERROR, Status.REJECTED), verdict.message


def test_text_is_the_modules_not_the_reports():
    source = "import triton\n\n\n@triton.jit\ndef f(x):\n    pass\n"
    record = {"functions": [{"name": "f", "line": 4}], "launches": [{"function": 0}]}
    found = with_texts(record, source)
    assert found is not None
    assert found["functions"][0]["text"] == "@triton.jit\ndef f(x):\n    pass\n"
    record["functions"][0]["line"] = 5
    lost = with_texts(record, source)
    assert lost is not None and "Python file" in lost["functions"][0]["error"]


@pytest.mark.parametrize(
    "head", ["# page\x0c\n", "# a\u2028b\n", '"""\x85"""\n', "\r\n", "# \ud83d half\n", "# \x1c\r"]
)
def test_text_of_a_function_below_other_separators_is_whole(head):
    source = f"{head}@triton.jit\ndef f(x):\n    return (\n        x\n    )\n\n\ny = 1\n"
    record = {"functions": [{"name": "f", "line": 2}], "launches": [{"function": 0}]}
    found = with_texts(record, source)
    assert found is not None
    whole = "@triton.jit\ndef f(x):\n    return (\n        x\n    )\n"
    assert found["functions"][0]["text"] == whole


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["functions", "launches", "function", "name", "line", "text"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_report_is_read_or_refused(record):
    found = with_texts(record, "def f():\n    pass\n")
    if found is not None:
        count = len(found["functions"])
        assert all(0 <= each["function"] < count for each in found["launches"])
