"""`prove`: gives a full verdict to a state that was judged only in a round with the start.

A round gathers no evidence that the custom kernels did the work. So before a state is compared with
the best, profiled, or ends the search by its share of the bandwidth, it has a full verdict.

Contract: a state gets at most one full verdict, and the outcome is an event, so that a search that
was cut off knows it. A state that is refused is a failure from then on: it leads nothing, and is
not compared again, and no algorithm chooses it to be changed. States that were made from it before
stay.
"""

from __future__ import annotations

import secrets

from kernelgym.types import Verdict
from kernelgym_train.mcgs.building import build_s, is_busy, judge_s
from kernelgym_train.mcgs.session import SearchSession

_ATTEMPTS = 2  # a state on which the judge fails in all of them counts as refused


def prove(session: SearchSession, key: str) -> bool:
    """Return True if a state's full verdict is correct; judge the state if it has none yet."""
    state = session.state
    if key in state.unproven:
        kernel, verdicts = state.variants[key].kernel(), list[Verdict]()
        while not verdicts or (not verdicts[-1].valid and len(verdicts) < _ATTEMPTS):
            # With a fresh seed the kernel meets other inputs than in its round.
            seed = secrets.token_hex(16)
            verdicts.append(session.evaluator.evaluate(session.task.problem, kernel, seed=seed))
        verdict = verdicts[-1]
        session.folder.write_verdict(key, verdict)
        fields = {
            "key": key,
            "status": verdict.status.value,
            "message": verdict.message[:300],
            "wall_s": judge_s(verdict),
            "build_s": build_s(verdict),
            "floor_share": 0.0 if verdict.timing is None else verdict.timing.floor_share,
            "verdicts": len(verdicts),
            "busy": int(is_busy([verdict])),
        }
        session.record("proved", fields)
        if not verdict.correct:
            told = verdict.status.value if verdict.valid else "the judge failed"
            said = f"refused by its full verdict: {told}"
            session.say(f"      {session.seconds:6.0f} s  {said}  {state.steps(key)}")
    return key not in state.graph.failed
