"""The one function that makes a verdict of what the stages found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.compiling.library_symbols import LibraryWork
from kernelgym.judge.evidence.evidence import Evidence
from kernelgym.judge.outcome import (
    Circumstances,
    JudgedCalls,
    JudgeFailure,
    JudgeOutcome,
    RunEnd,
    TimingOutcome,
    verdict_of,
    verdict_of_failures,
)
from kernelgym.judge.retries import Failure
from kernelgym.types import Finding, Severity, Status, Timing

FINDINGS = st.builds(
    Finding, st.sampled_from(["a", "b", "no_kernel_launch"]), st.just("m"), st.just(Severity.SOFT)
)
FOUND = st.lists(FINDINGS, max_size=2).map(tuple)
IDLE = Finding("no_kernel_launch", "no launch in 1 of 3 calls", Severity.HARD)
TIMING = Timing(1.0, 2.0, 2.0, 1.9, 9)
NOWHERE = Circumstances()


@st.composite
def calls(draw: st.DrawFn) -> JudgedCalls:
    planned = draw(st.integers(1, 9))
    made = JudgedCalls(planned)
    for index in range(planned):
        passed = draw(st.booleans())
        made.add(index, OutputComparison(passed, 0.5 * index, 0.1, "" if passed else "it differs"))
    return made


@st.composite
def timings(draw: st.DrawFn) -> TimingOutcome:
    timed = draw(st.booleans())
    reason = "" if timed else "busy"
    idle = draw(st.sampled_from([None, IDLE]))
    return TimingOutcome(TIMING if timed else None, reason, draw(FOUND), idle)


ENDS = st.builds(
    RunEnd,
    st.sampled_from([Status.TIMEOUT, Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.WRONG]),
    st.just("it ended"),
    st.sampled_from(["", "its log"]),
    FOUND,
    failure=st.sampled_from(Failure),
)
LIBRARIES = (None, LibraryWork(), LibraryWork((), ("cublas",)), LibraryWork(("dlopen",)))
EVIDENCE = (None, Evidence(3, 0.25), Evidence(0, 1.0, complaint="a decoy"))


@st.composite
def outcomes(draw: st.DrawFn) -> JudgeOutcome:
    end = draw(st.one_of(st.none(), ENDS))
    return JudgeOutcome(
        draw(calls()),
        loaded=end is None or (end.status is not Status.COMPILE_ERROR and draw(st.booleans())),
        noticed=draw(FOUND),
        library=draw(st.sampled_from(LIBRARIES)),
        evidence=draw(st.sampled_from(EVIDENCE)),
        timing=draw(st.one_of(st.none(), timings())),
        end=end,
        log="printed",
    )


OUTCOMES = outcomes()


@given(OUTCOMES)
def test_correct_verdict_has_nothing_against_it(outcome: JudgeOutcome) -> None:
    verdict = verdict_of(outcome, NOWHERE)
    hidden = outcome.library is not None and bool(outcome.library.hidden)
    complaint = outcome.evidence is not None and bool(outcome.evidence.complaint)
    idle = outcome.timing is not None and outcome.timing.idle is not None
    against = outcome.end is not None or outcome.calls.failed or hidden or complaint or idle
    assert verdict.correct == (not against)
    if verdict.timing is not None:
        assert verdict.correct and outcome.timing is not None
        assert verdict.timing is outcome.timing.timing


@given(OUTCOMES)
def test_early_end_decides_alone(outcome: JudgeOutcome) -> None:
    if outcome.end is None:
        return
    verdict, end = verdict_of(outcome, NOWHERE), outcome.end
    assert (verdict.status, verdict.message) == (end.status, end.message)
    assert verdict.findings == end.findings and verdict.custom_share is None
    assert verdict.log == (end.log or "printed")


@given(OUTCOMES)
def test_failure_is_of_the_stage_that_decides(outcome: JudgeOutcome) -> None:
    status, failure = verdict_of(outcome, NOWHERE).status, outcome.failure
    if outcome.end is not None:
        assert failure is outcome.end.failure
    elif status is Status.WRONG:
        assert failure is Failure.WRONG
    else:
        idle = status is Status.REJECTED and failure is Failure.IDLE
        assert failure is Failure.NONE or idle or outcome.library is not None


@given(OUTCOMES)
def test_unloaded_kernel_has_no_trials(outcome: JudgeOutcome) -> None:
    verdict = verdict_of(outcome, NOWHERE)
    assert verdict.compiled == outcome.loaded
    assert verdict.trials == (outcome.calls.planned if outcome.loaded else 0)


@given(OUTCOMES)
def test_circumstances_change_nothing_else(outcome: JudgeOutcome) -> None:
    at = Circumstances("cuda:0", "limits", "strict@1", "5eed", 1.5)
    bare, whole = verdict_of(outcome, NOWHERE), verdict_of(outcome, at)
    assert (whole.device, whole.isolation, whole.ruleset) == ("cuda:0", "limits", "strict@1")
    assert (whole.seed, whole.wall_s) == ("5eed", 1.5)
    own = {"device", "isolation", "ruleset", "seed", "wall_s"}
    first, second = bare.to_dict(), whole.to_dict()
    assert {key: first[key] for key in first if key not in own} == {
        key: second[key] for key in second if key not in own
    }


def test_failed_call_is_told_with_its_number() -> None:
    outcome = JudgeOutcome(JudgedCalls(2), loaded=True)
    outcome.calls.add(0, OutputComparison(True))
    outcome.calls.add(1, OutputComparison(False, 3.0, 1.0, "values differ"))
    verdict = verdict_of(outcome, NOWHERE)
    assert verdict.status is Status.WRONG and verdict.trials_passed == 1
    assert verdict.message == "1 of 2 calls failed; call 2 of 2: values differ"
    assert verdict.max_abs_error == 3.0


def test_evidence_replaces_the_softer_word_on_launches() -> None:
    soft = Finding("no_kernel_launch", "none", Severity.SOFT)
    outcome = JudgeOutcome(JudgedCalls(1, 1), loaded=True, noticed=(soft,), evidence=Evidence(1))
    assert verdict_of(outcome, NOWHERE).findings == ()


def test_idle_timed_calls_refuse_the_kernel() -> None:
    timing = TimingOutcome(TIMING, idle=IDLE)
    outcome = JudgeOutcome(JudgedCalls(1, 1), loaded=True, timing=timing)
    verdict = verdict_of(outcome, NOWHERE)
    assert verdict.status is Status.REJECTED and verdict.timing is None
    assert verdict.message.startswith("once it was timed, ") and verdict.findings == (IDLE,)


def test_failures_are_unavailable_unless_blamed() -> None:
    failures = [JudgeFailure("first"), JudgeFailure("killed", "worker_lost")]
    at = Circumstances(device="cpu", ruleset="strict@1")
    verdict = verdict_of_failures(failures, at)
    assert verdict.status is Status.UNAVAILABLE and not verdict.valid
    assert (verdict.message, verdict.findings[0].code) == ("killed", "worker_lost")
    blamed = verdict_of_failures(failures, at, blamed=True)
    assert blamed.status is Status.RUNTIME_ERROR and blamed.valid
    assert "each time on this kernel and on no other: killed" in blamed.message
