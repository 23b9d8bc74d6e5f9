"""`minimise`: removes the steps of the best kernel that do not make it faster.

A search adds steps, some of which have no effect once others are made. Each step that is left is
one that a reader of the best kernel has to understand.

Contract:

- a step is taken back if the kernel without it is at most 2 % slower than the best was when it was
  found, so that small losses do not add up, and if the lower end of the duel's interval is at most
  10 % below. On a busy host, where intervals are wider, steps stay;
- a step stays without a duel if the kernel without it was judged before and was wrong, or was
  slower by half or more;
- a step stays if the kernel without it fails;
- each outcome is an event, so that after a kill, minimising goes on where it ended.

Not covered: pairs of steps are not tried together. Of two steps that can replace each other, one is
taken back, and the other stays.
"""

from __future__ import annotations

import math

from kernelgym.evaluators.duel import Duel
from kernelgym_train.mcgs.proposing import Proposal
from kernelgym_train.mcgs.proving import prove
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.variant import plain_variant, state_key

_MOST_ROUNDS = 6
_SLOWER = math.log(1.02)
_UNSURE = math.log(1.1)
_MUCH_SLOWER = math.log(1.5)  # two verdicts of one kernel on an idle host differ by less


def minimise(session: SearchSession, best: str) -> tuple[str, bool]:
    """Remove the steps without which the best kernel is about as fast.

    Args:
        session: The search.
        best: Key of the confirmed best.

    Returns:
        The key of the state that is left, and whether every step was tried.
    """
    state = session.state
    while True:
        current = state.minimal or best
        simpler = session.proposer.simpler(state.variants[current])
        left = [each for each in simpler if each.step not in state.needed]
        if not left:
            return current, True
        proposal = left[0]
        key = state_key(proposal.variant)
        if (known := _known(session, best, current, key)) is not None:
            if known:  # the same state, whose text may differ in comments
                session.write_variant(key, proposal.variant, proposal.risk)
            session.record("reduced", _fields(best, key, proposal, gone=known))
            continue
        if not session.may_reduce():
            told = "some steps of the best were not tested for removal"
            session.say(f"{told}: {session.why_no_duel}")
            return current, False
        if not prove(session, key):
            continue  # refused: the next round of this loop records that the step stays
        session.write_variant(key, proposal.variant, proposal.risk)
        found = session.compare(
            "reduced",
            best,
            key,
            session.rounds_left(_MOST_ROUNDS, keep=session.end_s),
            variant=proposal.variant,
            more=lambda found: _fields(best, key, proposal, _goes(found)),  # noqa: B023
        )
        session.folder.write_verdict(key, found.verdicts[-1][1])
        gone = "removed" if _goes(found) else "kept"
        step = proposal.step
        session.say(f"      {session.seconds:6.0f} s  step {gone}: {step.move} ({step.choice})")


def _known(session: SearchSession, best: str, current: str, key: str) -> bool | None:
    """Return whether a step can be removed, if that is known without a duel; None otherwise."""
    graph = session.state.graph
    if key == current:
        return True
    if key in graph.failed:
        return False
    if key in graph.nodes and best in graph.nodes:
        if graph.nodes[best].value - graph.nodes[key].value > _MUCH_SLOWER:
            return False
    return None


def _goes(found: Duel) -> bool:
    """Return True if a duel shows that the kernel is fast enough without the step."""
    if not found.verdicts[-1][1].correct or found.ratio <= 0.0 or found.low <= 0.0:
        return False
    return math.log(found.ratio) >= -_SLOWER and math.log(found.low) >= -_UNSURE


def _fields(best: str, key: str, proposal: Proposal, gone: bool) -> dict[str, object]:
    step = proposal.step
    return {
        "of": best,
        "second": key,
        "step": [step.move, step.target, step.choice],
        "gone": gone,
        "variant": plain_variant(proposal.variant),
        "risk": proposal.risk,
    }
