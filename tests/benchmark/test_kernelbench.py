"""Verdicts in KernelBench's terms, and the cases and rules of the conformance benchmark."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.conformance import cases
from kernelgym.benchmark.kernelbench import KernelBenchResult, as_kernelbench
from kernelgym.testing import SAMPLE_PROBLEM, verdict
from kernelgym.types import Finding, Problem, Severity, Status, Verdict
from kernelgym.verdict import CONSTRUCTOR_FINDING
from support.strategies import verdicts

HEADER = '# /// conformance\n# problem = "KernelBench/L1/12"\n# language = "triton"\n'
KERNEL = "\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


# --------------------------------------------------------------------------- as_kernelbench


@given(verdicts())
def test_every_verdict_has_a_result_that_makes_sense(found: Verdict) -> None:
    result = as_kernelbench(found)
    assert result.compiled or not result.correctness
    assert result.correctness == found.correct
    assert (result.reason == "") == result.correctness
    assert result.correctness or not result.timed
    assert result.message == found.message


@given(verdicts((Status.CORRECT,)), st.sampled_from(Severity))
def test_a_hard_finding_costs_the_timing_and_nothing_else(
    found: Verdict, severity: Severity
) -> None:
    clean = dataclasses.replace(found, findings=())
    noted = dataclasses.replace(found, findings=(Finding("timer_patched", "it is", severity),))
    assert as_kernelbench(clean).timed == found.timed
    assert as_kernelbench(noted).timed == (found.timed and severity is not Severity.HARD)
    assert as_kernelbench(noted).correctness


@given(verdicts((Status.WRONG,)))
def test_a_wrong_kernel_compiled(found: Verdict) -> None:
    assert as_kernelbench(found).compiled


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.TIMEOUT, (False, "timeout")),
        (Status.NO_KERNEL, (False, "compilation_error")),
        (Status.UNAVAILABLE, (False, "retry")),
        (Status.COMPILE_ERROR, (False, "compilation_error")),
    ],
)
def test_what_kernelbench_files_as_not_compiled(status: Status, expected: tuple[bool, str]) -> None:
    # Ours calls a kernel that hangs after loading compiled; KernelBench's time limit does not.
    result = as_kernelbench(verdict(status))
    assert (result.compiled, result.reason) == expected


def test_what_triton_compiles_at_the_first_launch_is_a_runtime_error_there() -> None:
    found = Verdict(Status.COMPILE_ERROR, compiled=True, trials=5, message="CompilationError: at 7")
    assert as_kernelbench(found) == KernelBenchResult(
        True, False, False, "runtime_error", "CompilationError: at 7"
    )
    assert not as_kernelbench(dataclasses.replace(found, compiled=False, trials=0)).compiled


@pytest.mark.parametrize(
    ("error", "compiled"),
    [
        ("RuntimeError: mat1 and mat2 cannot be multiplied", True),
        ("NotImplementedError", True),
        ("OutOfMemoryError: CUDA out of memory", True),
        ("TypeError: ModelNew.__init__() takes 1 argument", False),
        ("AssertionError: ", False),
        ("ValueError: RuntimeError: not this one", False),
    ],
)
def test_constructors_count_as_compiled_only_with_a_runtime_error(
    error: str, compiled: bool
) -> None:
    told = Finding(CONSTRUCTOR_FINDING, error, Severity.INFO)
    found = verdict("runtime_error", message=error)
    assert as_kernelbench(dataclasses.replace(found, findings=(told,))).compiled == compiled
    assert as_kernelbench(found).compiled, "the same from forward is a runtime error"


@pytest.mark.parametrize(
    ("message", "compiled"),
    [
        ("AcceleratorError: CUDA error: an illegal memory access was encountered", False),
        ("RuntimeError: Triton Error [CUDA]: misaligned address (line 3)", False),
        ("AcceleratorError: CUDA error: invalid configuration argument", True),
        ("OutOfResources: out of resource: shared memory", True),
        ("the kernel's process failed while running forward: it was killed by SIGSEGV", False),
        ("SystemExit: 0 (line 23, in forward)", False),
        ("IndexError: list index out of range", True),
        ("", True),
    ],
)
def test_errors_that_outlive_their_call_are_not_compiled(message: str, compiled: bool) -> None:
    result = as_kernelbench(verdict("runtime_error", message=message))
    assert (result.compiled, result.correctness) == (compiled, False)


# --------------------------------------------------------------------------- the cases


def test_the_corpus_is_as_large_and_as_varied_as_promised() -> None:
    found = cases.load_cases()
    assert len({case.name for case in found}) == len(found) >= 66
    whole = {case.problem for case in found if not case.sizes}
    assert len(whole) >= 20
    assert len([case for case in found if not case.sizes]) >= 60
    assert {case.outcome for case in found} == set(cases.OUTCOMES)
    assert {problem.split("/")[1] for problem in whole} == {"L1", "L2", "L3"}
    built = [case for case in found if "load_inline" in case.kernel.source]
    assert len(built) <= 6, "each costs KernelBench half a minute of compiling"


@pytest.mark.parametrize("case", cases.load_cases(), ids=lambda case: case.name)
def test_every_case_is_python_with_the_class_unless_it_is_about_that(case: cases.Case) -> None:
    source = case.kernel.source
    assert ("class ModelNew(nn.Module):" in source) == (case.outcome != "missing_class")
    assert "class Model(" not in source or case.outcome == "missing_class"
    try:
        compile(source, case.name, "exec")
        parses = True
    except SyntaxError:
        parses = False
    assert parses == (case.outcome != "syntax_error")
    assert case.documented or case.expected == cases.OUTCOMES[case.outcome]


def test_what_may_break_the_device_comes_last_and_problems_stay_together() -> None:
    order = [case.problem for case in cases.load_cases() if case.outcome in ("correct", "either")]
    starts = [p for index, p in enumerate(order) if index == 0 or order[index - 1] != p]
    assert len(starts) == len(set(starts))
    outcomes = [case.outcome for case in cases.load_cases()]
    abnormal = {"memory_fault", "process_exit", "timeout"}
    first = min(index for index, outcome in enumerate(outcomes) if outcome in abnormal)
    assert set(outcomes[first:]) <= abnormal


def test_a_header_is_read() -> None:
    text = HEADER + (
        '# outcome = "correct"\n# documented = "dropout reseeding"\n'
        "# sizes = { M = 4, shape = [2, 3] }\n# cpu_sizes.N = 8\n# limit_s = 7\n# ///\n" + KERNEL
    )
    case = cases.parse_case("name", text)
    assert case.kernel.source == KERNEL.lstrip("\n")
    assert (case.sizes, case.cpu_sizes) == ({"M": 4, "shape": [2, 3]}, {"N": 8})
    assert (case.limit_s, case.cpu, case.expected) == (7, True, cases.FAILED)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (KERNEL, "starts with"),
        (HEADER, "ends its header"),
        (HEADER + "# ///\n", "missing"),
        (HEADER + "# outcome =\n# ///\n", "no TOML"),
        (HEADER + '# outcome = "fine"\n# ///\n', "unknown outcome"),
        (HEADER + '# outcome = "correct"\n# why = 1\n# ///\n', "unknown"),
        (HEADER + '# outcome = "correct"\n# documented = "luck"\n# ///\n', "no documented"),
        (HEADER.replace("triton", "cpp") + '# outcome = "correct"\n# ///\n', "language"),
    ],
)
def test_bad_headers_say_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(cases.CaseError, match=complaint):
        cases.parse_case("bad", text)


def test_an_unmatched_pattern_is_an_error() -> None:
    with pytest.raises(cases.CaseError, match="no case"):
        cases.load_cases(pattern="l9_*")


# --------------------------------------------------------------------------- cut problems


def _problem(constants: str) -> Problem:
    return dataclasses.replace(SAMPLE_PROBLEM, source=f"{constants}\n{SAMPLE_PROBLEM.source}")


def test_constants_are_replaced_and_what_follows_from_them_follows() -> None:
    whole = _problem(
        "rows = 4096 * 8\nD, H = 24, 32  # two\nshape = (\n    3,\n    4,\n)\narea = rows * D"
    )
    small = cases.cut(whole, {"rows": 2, "D": 5, "H": 6, "shape": [7]})
    names: dict[str, object] = {}
    exec(small.source.partition("import torch")[0], names)
    assert [names[name] for name in ("rows", "D", "H", "shape", "area")] == [2, 5, 6, (7,), 10]
    assert small.digest != whole.digest and small.id == whole.id
    assert cases.cut(whole, {}) is whole


def test_a_constant_that_is_not_there_is_an_error() -> None:
    whole = _problem("D, H = 24, 32\ndef get():\n    rows = 2\n")
    for sizes in ({"rows": 3}, {"D": 3}, {"nothing": 1}):
        with pytest.raises(cases.CaseError, match="no constants"):
            cases.cut(whole, sizes)


# --------------------------------------------------------------------------- agreement

pairs = st.sampled_from([cases.PASSED, cases.FAILED, cases.NOT_COMPILED])
documented = st.sampled_from(["", *cases.DOCUMENTED])


@given(documented, pairs, pairs)
def test_sides_agree_exactly_when_their_pairs_do(which, theirs, ours) -> None:
    result = cases.compare(which, cases.Outcome(theirs), cases.Outcome(ours))
    assert (result == cases.AGREE) == (theirs == ours)
    if theirs != ours:
        excused = bool(which) and (theirs, ours) in cases.DOCUMENTED[which]
        assert result == (f"documented: {which}" if excused else cases.DISAGREE)


@given(documented, pairs)
def test_silence_is_never_agreement(which, pair) -> None:
    silent, spoken = cases.Outcome(None), cases.Outcome(pair)
    for theirs, ours in ((spoken, silent), (silent, silent)):
        assert cases.compare(which, theirs, ours) == cases.DISAGREE
    excused = bool(which) and (None, pair) in cases.DOCUMENTED[which]
    wanted = f"documented: {which}" if excused else cases.DISAGREE
    assert cases.compare(which, silent, spoken) == wanted


def test_no_documented_difference_excuses_accepting_what_kernelbench_could_not_compile() -> None:
    for known in cases.DOCUMENTED.values():
        assert (cases.NOT_COMPILED, cases.PASSED) not in known
        assert all(theirs != ours for theirs, ours in known)


def test_a_finished_case_is_known_by_problem_and_kernel() -> None:
    first, second = cases.load_cases()[:2]
    mark = cases.fingerprint(SAMPLE_PROBLEM, first.kernel)
    assert mark == cases.fingerprint(SAMPLE_PROBLEM, first.kernel)
    assert mark != cases.fingerprint(SAMPLE_PROBLEM, second.kernel)
    assert mark != cases.fingerprint(_problem("N = 1"), first.kernel)


def test_results_are_counted() -> None:
    assert cases.summary(["agree", "DISAGREE", "agree"]) == {"DISAGREE": 1, "agree": 2}
