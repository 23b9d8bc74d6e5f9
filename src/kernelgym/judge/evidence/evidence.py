"""Evidence that a custom kernel did the work, gathered from a process that runs the kernel.

The judge asks three questions about a kernel that is already correct, in this order:

1. Was a custom kernel launched, and did any launch do more than copy or keep what it was given?
2. Do torch's operators have less work left than in the reference? The judge compares the bytes
   that they move, kind by kind, or floating-point operations where the reference consists of
   matrix products. So neither other names for the same work nor a fused operator in place of
   several helps.
3. Is the output wrong once the custom kernels are taken out?

On a GPU, one further call tells whose kernels the device worked for (`device_share.py`). Libraries'
kernels that no operator of torch launched are work that the second question missed.

For most Triton kernels the judge asks between the judged calls
(`kernelgym.judge.evidence.inline`): it watches one judged call, chosen in secret, and makes one
further call, which is not judged, without the custom kernels. These answers are used only if they
speak for the kernel. Otherwise, and for kernels that cannot be watched between judged calls, the
judge asks in a second process (`gather`).

A kernel may leave part of the work to torch, but not all of it.

Not covered: hostile kernels. Every answer is read from a process that the kernel shares, so this is
policy for honest and for lazy kernels. A hostile kernel can forge the first two answers
(`untrusted/watch/tracer.py` says how they are obtained); its outputs are compared all the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling.library_symbols import computes, device_functions
from kernelgym.judge.evidence.device_share import DeviceShare, OwnNames, device_share, read_run
from kernelgym.judge.evidence.reports import (
    claimed_work,
    in_later_calls,
    number,
    read_profile,
    uncounted_work,
    work_on_host,
)
from kernelgym.judge.evidence.torch_share import TorchWork, counted, torch_share
from kernelgym.judge.retries import Failure, attempts_at
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launch_count import LaunchTally
from kernelgym.judge.session.live_run import JudgedCase, LiveRun, Rerun
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.tensors import bytes_of
from kernelgym.judge.untrusted.watch.operator_work import COPIES, JOINS
from kernelgym.languages import LANGUAGES, noun_of
from kernelgym.rulesets import Ruleset
from kernelgym.types import Finding, Kernel, Profile, Severity
from kernelgym.verdict import SMALL_SHARE

_ABLATED_S = 10.0
_EXPLAINED = 0.25  # torch's share of the work: below, torch cannot have computed all of the output
_MARGIN = 0.01
_LISTED_AGAIN = 2  # further calls whose kernels are listed before a share of time refuses a kernel
_AS_MANY = 1.25  # times the reference's products
_FASTEST = 1.2e10  # bytes that pass a GPU's L2 cache in 1 ms; an H200's: 7e9
_FASTER = 0.75  # a watched call comes first, on a device that may have slowed its clock down
_SLOWER = 1.5  # the same operator's kernels in a call that was not watched


@dataclass(frozen=True, slots=True)
class Evidence:
    """Answers of a watched run to whether a custom kernel did the work."""

    launches: int = 0
    """Custom launches in one call."""
    torch_share: float = 0.0
    """Work left to torch's operators as a share of the reference's; 1 or more if all is left."""
    whole_model: bool = False
    """Whether the reference is a model of transformers (`TorchWork.whole_model`)."""
    device_share: float | None = None
    """The custom kernels' share of the device's time in one call; None if it is not known."""
    swapped: bool = False
    """Whether torch computes by operators that the reference does not call."""
    contributes: bool = False
    """Whether the output is wrong once the custom kernels are taken out."""
    crashed: bool = False
    """Whether a process failed meanwhile; the caller then checks that the device still works."""
    ran: DeviceShare | None = None
    """GPU time of one watched call by owner of the kernels; None if it is not known."""
    own_names: OwnNames | None = None
    """Names of the candidate's device functions, by which `ran` was divided; None without it."""
    profile: Profile | None = None
    """Launch times of one call; None if kernels are interpreted."""
    complaint: str = ""
    """Reason why the kernel does not count as custom; empty if it does."""
    findings: tuple[Finding, ...] = ()
    failure: Failure = Failure.NONE
    """Failure behind the complaint, if another attempt may avoid it."""


def prepare(session: CandidateSession) -> None:
    """Make a candidate's process watchable before it holds any kernel code.

    Raises:
        JudgeError: If this fails: without kernel code, it cannot be the kernel's fault.
    """
    try:
        session.trace("off")
    except Rejected as end:
        raise JudgeError(f"custom kernels cannot be watched in this process: {end}") from None


def gather(rerun: Rerun) -> Evidence:
    """Run a correct kernel again, watched, and then without its custom launches.

    Args:
        rerun: Runs the kernel in a fresh process.

    Raises:
        JudgeError: If a process cannot be watched even before it holds any kernel code.
    """
    case = rerun.case
    failure, last = Failure.NONE, ""
    for attempt in range(attempts_at(Failure.EVIDENCE_RUN)):
        with rerun.open() as session:
            prepare(session)
            try:
                run = rerun.start(session)
                session.trace("record")
                with counted(run.reference.model) as counter:
                    outcome = session.call(run.reference, len(run.reference.plan), explain=False)
                seen = session.trace("ablate")
                if outcome.passed and seen.get("captured") is True:
                    session.trace("record")
                    outcome = session.call(
                        run.reference, len(run.reference.plan) + 2, explain=False
                    )
                    seen = in_later_calls(seen, session.trace("ablate"))
            except Rejected as end:
                failure, last = end.failure, str(end)
                continue
            if not outcome.passed:
                failure, last = Failure.WRONG, outcome.message
                continue
            work = TorchWork.of(counter, run.reference.model)
            evidence = from_watched_call(seen, work, case.kernel, case.ruleset)
            evidence = dataclasses.replace(evidence, crashed=attempt > 0)
            if not evidence.complaint:
                in_graphs = claimed_work(seen.get("in_graphs")).bytes
                captured = any(map(computes, in_graphs))
                evidence = on_device(evidence, run, work, captured=captured)
            if evidence.complaint:
                return evidence
            if seen.get("captured") is not True:
                return profiled(without_own_kernels(evidence, run), run)
        # A captured CUDA graph replays the launches it was captured with, so skipping launches has
        # no effect on it: a new process skips them before it captures a graph.
        with rerun.open() as session:
            try:
                session.trace("ablate")
                run = rerun.start(session)
            except Rejected as end:
                failure, last = end.failure, str(end)
                continue
            return without_own_kernels(evidence, run)
    message = (
        "the kernel passed, but failed twice when it was run again to see what its custom "
        f"kernels do: {last}"
    )
    # What differs from a judged call is the evidence run itself, unless memory was short.
    failed = failure if failure is Failure.MEMORY else Failure.NONE
    return _refused("no_evidence_run", message, Evidence(crashed=True, failure=failed))


def without_own_kernels(evidence: Evidence, run: LiveRun) -> Evidence:
    """Make one call without the custom kernels, which tells whether the output needs them.

    Whatever goes wrong in that call shows that the custom kernels matter.
    """
    run.session.channel.grant(_ABLATED_S)
    crashed, decided = evidence.crashed, 1.0
    try:
        # Calls past the planned ones use inputs on which there is work to do (`kind_of`): on
        # inputs without negative values a ReLU has none, and an honest kernel would look idle.
        outcome = run.session.call(run.reference, len(run.reference.plan) + 1, explain=False)
        contributes, decided = not outcome.passed, outcome.wrong_share
    except Rejected:
        contributes = crashed = True
    found = dataclasses.replace(evidence, contributes=contributes, crashed=crashed)
    name = noun_of(run.case.kernel.language)
    if not contributes:
        message = (
            f"the {name}'s result is not used: with its launches skipped the output stays right. "
            "Compute the output, or a part of it that matters, in the custom kernel"
        )
        return _refused("decoy_kernel", message, found)
    # An epilogue may rightly change few elements of what torch computed, as a clamp does, if torch
    # did what it does in the reference.
    unexplained = found.swapped or found.torch_share < _EXPLAINED
    if decided < run.case.ruleset.least_share and unexplained:
        message = (
            f"the {name} decides {decided:.2%} of the output's elements: with its launches skipped "
            "all others stay right. Replace an operator, not a sliver of its elements"
        )
        return _refused(SMALL_SHARE, message, found)
    return found


def on_device(
    evidence: Evidence, run: LiveRun, work: TorchWork, *, captured: bool = False
) -> Evidence:
    """Return evidence extended by one more call's GPU time by owner.

    The process ablates calls afterwards.

    Args:
        evidence: From the watched call.
        run: The live run.
        work: Work of torch's operators in the reference's call.
        captured: Whether the watched call captured a graph in which operators of torch compute. If
            not, kernels of a replayed graph that are not the candidate's count as a library's.
    """
    if evidence.complaint or not run.case.ruleset.own_time or str(run.session.device) == "cpu":
        return evidence
    # A kernel that the device interrupted for another process's seems to take long: only what
    # is found again counts.
    for again in range(_LISTED_AGAIN + 1):
        found = _in_one_call(evidence, run, work, captured, again)
        if not found.complaint or found.ran is None:
            break
    return found


def _in_one_call(
    evidence: Evidence, run: LiveRun, work: TorchWork, captured: bool, again: int
) -> Evidence:
    session, rules, kernel = run.session, run.case.ruleset, run.case.kernel
    try:
        session.trace("device")
        place = len(run.reference.plan) + 3 + again
        outcome = session.call(run.reference, place, explain=False)
        seen = session.trace("ablate")
    except Rejected:
        return dataclasses.replace(evidence, crashed=True)
    if not outcome.passed:
        message = (
            "the output is wrong in the call in which the device's kernels are listed: do the same "
            "work in every call"
        )
        return _refused("no_evidence_run", message, evidence)
    ran = read_run(seen)
    if ran is None:
        return evidence
    functions: set[str] = set()
    for built in session.channel.made.values():
        with contextlib.suppress(OSError):  # the cache may have dropped it
            functions |= device_functions(Path(built.path).read_bytes())
    compiled = seen.get("compiled_names")
    names = map(str, compiled) if isinstance(compiled, list) else ()
    own = OwnNames(kernel.source, names, functions)
    share = device_share(ran, own, captured=captured)
    evidence = dataclasses.replace(evidence, ran=share, own_names=own)
    # A call's inputs may change how much it multiplies, a mask's for instance.
    products = claimed_work(seen).products
    explained = 0.0 < products <= _AS_MANY * (work.products + work.estimated)
    # A fused epilogue reads and writes a tensor of the output's size.
    epilogue_ms = 2 * bytes_of(session.buffers.example[1]) / _FASTEST if explained else math.inf
    name = noun_of(kernel.language)
    return _with_device_share(evidence, share, rules, name, epilogue_ms)


def _with_device_share(
    found: Evidence,
    share: DeviceShare,
    rules: Ruleset,
    name: str,
    epilogue_ms: float = math.inf,
) -> Evidence:
    """Return evidence that takes a call's GPU time by owner into account.

    Args:
        found: Evidence so far.
        share: GPU time of the call by owner.
        rules: Ruleset that says how small a share is too small.
        name: What a custom kernel of the language is called.
        epilogue_ms: Least milliseconds of custom kernels that may be a product's fused epilogue;
            infinite if torch's products in the call are more than the reference's.
    """
    if share.beside_libraries < rules.own_time:
        message = (
            f"kernels of libraries ({', '.join(share.libraries)[:300]}) ran that no operator of "
            f"torch launched in this call: they took {share.library_ms:.4f} ms of the device, the "
            f"{name}s {share.own_ms:.4f} ms. Write that computation in the {name}, or call torch's "
            "operators, outside graphs or in one that the first call captures, where they are "
            "counted"
        )
        return _refused("hidden_library_work", message, found)
    kept = tuple(finding for finding in found.findings if finding.code != SMALL_SHARE)
    found = dataclasses.replace(found, device_share=share.own, findings=kept)
    # Good kernels take little of a whole model's time (1.8 % of GPT-2's for norms and activations)
    # or of a long product's, if they are a fused epilogue: 1.2 % of the time of KernelBench L2/40.
    beside = share.beside_products
    is_epilogue = share.own_busy_ms >= epilogue_ms and beside >= rules.least_share
    excused = share.own_ms > 0.0 and (found.whole_model or is_epilogue)
    least = 0.0 if excused else rules.least_share
    what = "of the work by the device's time"
    return _with_small_share(found, share.own, least, what, rules, name)


def runs_faster(evidence: Evidence, timed_ms: float) -> bool:
    """Return True if timed calls are so much faster than the watched one that they may differ."""
    return evidence.ran is not None and timed_ms < _FASTER * evidence.ran.total_ms


def in_timed_calls(
    evidence: Evidence, seen: dict[str, Any], calls: int, timed_ms: float, case: JudgedCase
) -> Finding | None:
    """Return a hard finding if timed calls leave to libraries what the watched call did not.

    Timed calls are a graph that was captured unwatched. Its kernels carry no operator, so what is
    not the candidate's may be torch's for as long as torch's kernels took in the watched call.

    Args:
        evidence: Evidence of the watched call.
        seen: The candidate's list of the graph's kernels; empty if its calls were not captured.
        calls: Number of calls in the graph.
        timed_ms: Time of a call of the same graph, unlisted.
        case: The case.
    """
    ran, least = read_run(seen), case.ruleset.own_time
    if ran is None or evidence.ran is None or evidence.own_names is None or not calls:
        return None
    timed = device_share(ran, evidence.own_names)
    others_ms = timed.library_busy_ms / calls - _SLOWER * evidence.ran.others_ms
    own_ms = timed.own_busy_ms / calls
    # A kernel that spins while it is listed, to look busy, takes longer there than when timed.
    own_ms = min(own_ms, max(0.0, _SLOWER * timed_ms - timed.library_ms / calls))
    if others_ms <= 0 or own_ms >= least * (own_ms + others_ms):
        return None
    message = (
        f"kernels of libraries or torch ({', '.join(timed.libraries)[:300]}) take "
        f"{timed.library_ms / calls:.4f} ms of a timed call, and took {evidence.ran.others_ms:.4f} "
        "ms of the watched one: do the same work in every call"
    )
    return Finding("hidden_library_work", message, Severity.HARD)


def profiled(evidence: Evidence, run: LiveRun) -> Evidence:
    """Return evidence extended by the launch times of one more call, for information only."""
    timed = LANGUAGES[run.case.kernel.language].is_timed(str(run.session.device))
    if evidence.complaint or evidence.crashed or not timed:
        return evidence
    # The call without its custom kernels may have broken the process's state.
    session, seeds = run.session, run.case.seeds
    try:
        session.trace("profile")
        inputs = run.reference.inputs_for_timing(seeds.derive("profile"))
        if session.buffers.alike(inputs):
            session.run([inputs], [seeds.derive("profile-forward")])
        seen = session.trace("off")
    except Rejected:
        return dataclasses.replace(evidence, crashed=True)
    return dataclasses.replace(evidence, profile=read_profile(seen))


def from_watched_call(
    seen: dict[str, Any], work: TorchWork, kernel: Kernel, rules: Ruleset | None = None
) -> Evidence:
    """Return evidence that answers the first two questions.

    Args:
        seen: The candidate's report on a watched call; it may be forged.
        work: Work of torch's operators in the same call of the reference.
        kernel: The kernel.
        rules: Ruleset that says how small a share of the work is too small; None allows any.
    """
    launches, working = int(number(seen.get("launches"))), int(number(seen.get("working")))
    left = claimed_work(seen)
    dear = rules is not None and rules.unknown_operators == "dear"
    share = torch_share(work, left, unknown_is_dear=dear)
    findings: tuple[Finding, ...] = ()
    if seen.get("compiled") is True:
        message = "torch.compile is called; the kernels that it generates count as torch's own"
        findings = (Finding("torch_compile", message),)
    others = left.bytes.keys() - work.bytes.keys() - COPIES - JOINS
    swapped = any(left.bytes[name] > 0 for name in others)
    found = Evidence(launches, share, work.whole_model, swapped=swapped, findings=findings)
    name = noun_of(kernel.language)
    if seen.get("hidden") is True:
        message = (
            "a CUDA graph is replayed that was captured before the first call, so the judge could "
            "not see what it holds: capture it in forward, in the first call"
        )
        return _refused("hidden_graph", message, found)
    if launches == 0:
        message = f"no {name} was launched while the output was computed"
        idle = dataclasses.replace(found, failure=Failure.IDLE)
        return _refused("no_kernel_launch", message, idle)
    if working == 0:
        message = (
            f"every launch of a {name} left its tensors as they were or made a plain copy of one: "
            "the work is done elsewhere"
        )
        return _refused("decoy_kernel", message, found)
    if host := work_on_host(seen, work, name):
        return _refused("work_on_host", host, found)
    if message := uncounted_work(seen):
        return _refused("hidden_library_work", message, found)
    if share > 1 - _MARGIN:
        ran = ", ".join(sorted(left.bytes, key=lambda k: -left.bytes[k])[:4]) or "other operators"
        message = (
            f"PyTorch's own operators still do all of the reference's work ({ran[:200]}): a {name} "
            "must replace some of it, not come on top"
        )
        return _refused("work_not_replaced", message, found)
    if rules is None:
        return found
    least = rules.small_share if work.whole_model else rules.least_share
    return _with_small_share(found, 1.0 - share, least, "of the reference's work", rules, name)


def _with_small_share(
    found: Evidence, own: float, least: float, of_what: str, rules: Ruleset, name: str
) -> Evidence:
    """Return evidence with a finding or a refusal if the custom kernels' share is small."""
    if own >= rules.small_share:
        return found
    message = f"the {name} does {own:.1%} {of_what}, and PyTorch's own operators the rest"
    if own < least:
        message += ": replace an operator, not a sliver of its elements"
        return _refused(SMALL_SHARE, message, found)
    finding = Finding(SMALL_SHARE, message, Severity.SOFT)
    return dataclasses.replace(found, findings=(*found.findings, finding))


def with_launches(evidence: Evidence, tally: LaunchTally, kernel: Kernel) -> Evidence:
    """Return evidence that also takes the judged calls' launches into account.

    Args:
        evidence: Evidence of the watched run.
        tally: Number of judged calls that launched nothing.
        kernel: The kernel.
    """
    idle = tally.finding(kernel, Severity.HARD, evidence.launches)
    if idle is None or evidence.complaint:
        return evidence
    findings = (idle, *evidence.findings)
    return dataclasses.replace(
        evidence, complaint=idle.message, findings=findings, failure=Failure.IDLE
    )


def _refused(code: str, message: str, found: Evidence) -> Evidence:
    finding = Finding(code, message, Severity.HARD)
    return dataclasses.replace(found, complaint=message, findings=(finding, *found.findings))
