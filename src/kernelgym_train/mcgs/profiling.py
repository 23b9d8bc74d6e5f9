"""Reads the hardware counters of a search's states, and records them as events.

Contract: a state is profiled at most once, and at the earliest ``ncu_every`` evaluations after the
last profile. Once the driver has forbidden it, or there is no profiler, it is not tried again. Each
profile is an event, so that a resumed search has the same priors.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kernelgym import UsageError
from kernelgym.counters import Counters
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.state import SearchState

_NEVER_AGAIN = ("forbidden", "unavailable")


def is_refused(state: SearchState) -> bool:
    """Return True if counters cannot be read on this machine.

    Where counters were read once, a refusal is no driver's: a kernel can write the driver's words.
    """
    found = {each["status"] for each in state.profiles.values()}
    return "measured" not in found and not found.isdisjoint(_NEVER_AGAIN)


def should_profile(session: SearchSession, key: str) -> bool:
    """Return True if a state's counters should be read now."""
    state, every = session.state, session.config.ncu_every
    if session.profiles is None or key in state.profiles or session.is_stopped:
        return False
    if is_refused(state):
        return False
    return state.profiled_at is None or state.evaluations - state.profiled_at >= every


def profile(session: SearchSession, key: str) -> None:
    """Read the counters of a state, and record them."""
    assert session.profiles is not None
    kernel = session.state.variants[key].kernel()
    try:
        found = session.profiles.profile(session.task.problem, kernel)
    except UsageError as error:  # judged before a kill, by another evaluator
        found = Counters("failed", message=str(error))
    fields = {"key": key, **dataclasses.asdict(found), "bottlenecks": dict(found.bottlenecks)}
    session.record("profiled", fields)
    if found.status == "measured":
        shares = sorted(found.bottlenecks.items(), key=lambda each: -each[1])[:3]
        told = ", ".join(f"{name} {share:.0%}" for name, share in shares)
    else:
        told = f"no counters ({found.status}): {found.message}"
    session.say(f"      {session.seconds:6.0f} s  profile: {told}")


def profile_last(session: SearchSession, best: str | None) -> dict[str, Any] | None:
    """Return the bottlenecks of the start and the best by counters; None without a profiler.

    The best is profiled if it has no profile yet.

    Args:
        session: The search.
        best: Key of the best; None for the start.
    """
    if session.profiles is None:
        return None
    state = session.state
    keys = {"start": state.start, "best": best or state.start}
    if keys["best"] not in state.profiles and session.seconds_left > session.end_s:
        if not is_refused(state):
            profile(session, keys["best"])
    return {
        name: dict(found["bottlenecks"])
        for name, key in keys.items()
        if (found := state.profiles.get(key)) is not None
    }
