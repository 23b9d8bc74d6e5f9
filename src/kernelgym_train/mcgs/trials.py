"""Entries of a search's history: results of evaluations, and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """One result of an evaluation, or a proposal of a state that has a result already."""

    key: str
    """Key of the state: of its node in the search graph, or of a failed state, which has no node. A
    state that compiles to the same machine code as an earlier one has the earlier one's key."""
    node: str
    """Key of the node that the move was made at."""
    move: str
    """Id of the move."""
    value: float | None
    """ln of the speedup over the start; None for a failure."""
    charged: bool
    """Whether the result counts as an evaluation; False for a proposal of a known state."""
    state: str = ""
    """Key of the proposed state where its machine code equals that of `key`; empty otherwise."""
    seconds: float = 0.0
    """Seconds that the search had run when the result came."""
    status: str = ""
    """Status of the verdict, or ``same_code``."""
    message: str = ""
    """Message of the verdict."""
    build_s: float = 0.0
    """Seconds of the build."""
    judge_s: float = 0.0
    """Seconds of the verdict without its build."""
    round_s: float = 0.0
    """Seconds of timing the state beside the start, without waits for the device."""

    @property
    def proposed(self) -> str:
        """Key of the state that was proposed."""
        return self.state or self.key


@dataclass(frozen=True, slots=True)
class SearchDuel:
    """One comparison of two states of a search by `kernelgym.duel`."""

    kind: str
    """Name of the event: ``duel`` (with the best so far), ``confirmed`` (with the start) or
    ``reduced`` (with the best, from which one step was removed)."""
    first: str
    """Key of the first state."""
    after: int
    """Number of evaluations before the comparison."""
    key: str
    """Key of the second state."""
    ratio: float
    """Speedup of the second state over the first."""
    low: float
    """Lower end of the ratio's 95 % interval."""
    high: float
    """Upper end of the ratio's 95 % interval."""
    rounds: int
    """Number of rounds."""
    decided: str
    """The faster state: ``first``, ``second`` or ``neither``."""
    took_s: float
    """Seconds that the comparison took."""
    busy: int = 0
    """Number of rounds in which the judge found the host busy."""


def judged_whole(trial: SearchTrial, key: str, verdict: Mapping[str, Any]) -> SearchTrial:
    """Return a trial with the fields of a later full verdict on its state.

    Args:
        trial: Trial to update; returned unchanged if it belongs to another state.
        key: Key of the state, which so far was judged only in a round with the start.
        verdict: Fields of the event ``proved``. Its seconds are added to the trial that counts as
            the state's evaluation; if it is not correct, every trial of the state has failed.
    """
    if trial.key != key:
        return trial
    if trial.charged and not trial.state:
        spent_s, build_s = trial.judge_s + verdict["wall_s"], trial.build_s + verdict["build_s"]
        trial = replace(trial, judge_s=spent_s, build_s=build_s)
    if verdict["status"] == "correct":
        return trial
    return replace(trial, value=None, status=verdict["status"], message=verdict["message"])


def leads_of(
    trials: Iterable[SearchTrial], known: Iterable[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Return (number of evaluations, value) at each improvement of the best value, from 0.0 on.

    Args:
        trials: All trials, in order.
        known: Other values that count, of states that were timed later than they were judged.
    """
    charged = enumerate((trial.value for trial in trials if trial.charged), 1)
    found = [(number, value) for number, value in charged if value is not None]
    leads = [(0, 0.0)]
    for each in sorted((*known, *found)):
        if each[1] > leads[-1][1]:
            leads.append(each)
    return leads
