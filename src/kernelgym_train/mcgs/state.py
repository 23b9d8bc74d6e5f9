"""`SearchState`: everything that a search knows, computed from its log of events.

Contract: `SearchState.take` is the only function that changes a search's state. A running search
writes an event into its log and then takes it in; a resumed search takes in the events of the log
and so reaches the same state. Does no IO and reads no clock.

`plain_state` returns the state as JSON (version 1), which ``search_state.json`` holds for readers
and other programs. A search is resumed from its log, never from that file:

- ``evaluations, duplicates, pruned, failures, seconds, stopped, noise, incumbent, start``;
- ``nodes``: by key, in the order in which they were found: ``value`` (ln of the speedup over the
  start), ``best`` (the highest value of the node and of all nodes below it), ``risk``, ``applied``
  and ``actions``, each with ``attempts, failures, passes`` and the ``visits`` of its children;
- ``failed``: keys of states that were judged and are no node; ``open``: keys without a verdict;
- ``twins``: keys of states whose machine code equals that of another state, with its key;
- ``beaten``: keys of states that lost a duel, or did not win it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym.types import Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.events import SearchEvent
from kernelgym_train.mcgs.graph import SearchGraph
from kernelgym_train.mcgs.moves.definition import RISKS
from kernelgym_train.mcgs.tactics import MoveExperience, last_move
from kernelgym_train.mcgs.variant import MoveStep, Variant, steps_in_words
from kernelgym_train.mcgs.writing.asks import AskLog

_GAIN = math.log(1.02)
_VERSION = 1  # of `plain_state`


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """One result of an evaluation, or a proposal of a state that has a result already."""

    key: str
    """Key of the graph's node, or of the failed state. For a state whose machine code equals that
    of an earlier one, the earlier state's key."""
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

    @property
    def proposed(self) -> str:
        """Key of the state that was proposed."""
        return self.state or self.key


@dataclass(frozen=True, slots=True)
class SearchDuel:
    """One comparison of two states of a search by `kernelgym.duel`."""

    kind: str
    """Name of the event: ``duel`` (with the best so far), ``confirmed`` (with the start) or
    ``reduced`` (with the best, which has one step more)."""
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


@dataclass(slots=True)
class SearchState:
    """What a search has tried, and the results."""

    start: str
    """Key of the start."""
    variants: dict[str, Variant]
    """Variants of all states that were proposed, by key."""
    graph: SearchGraph
    risks: dict[str, str] = field(default_factory=dict)
    """Risks of states, by key."""
    start_speedup: float = 0.0
    """Speedup of the start over the reference in its first verdict; 0.0 until there is a
    verdict."""
    start_wall_s: float = 0.0
    """Seconds that judging the start took, without its build."""
    start_shown_s: float = 0.0
    """Seconds of `start_wall_s` that were spent at shapes which are not hidden."""
    starts_s: float = 0.0
    """Seconds that all verdicts on the start took, builds included."""
    begun: bool = False
    """Whether the log has an event."""
    starts: int = 0
    """Number of verdicts on the start."""
    report: str | None = None
    """Report of the compiler on the start's loops; None if there is no report."""
    noise: float = 0.0
    """Noise of the start's times: abs(ln) of the ratio of the speedups in its two verdicts."""
    host_busy: bool = False
    """Whether the judge found the host busy while it timed the start."""
    evaluations: int = 0
    """Number of results that are charged to the budget."""
    duplicates: int = 0
    """Number of proposals that repeated a known state."""
    pruned: int = 0
    """Number of proposals that were not judged, since too little was expected of them."""
    failures: dict[str, int] = field(default_factory=dict)
    """Number of verdicts that gave no node, by status."""
    open: list[str] = field(default_factory=list)
    """Keys of states without a result, in the order in which they were dispatched."""
    incumbent: str = ""
    """Key of the best state that a duel has confirmed; the start at first."""
    proof: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Speedup of the incumbent over the start with both ends of its interval: products over the
    duels that led from the start to it. The interval is wider than independent errors need."""
    beaten: set[str] = field(default_factory=set)
    """Keys of states that a duel did not confirm."""
    builds: dict[str, str] = field(default_factory=dict)
    """State by the key of its machine code: the first state that has it, or a later one of less
    risk."""
    wall_s: dict[str, float] = field(default_factory=dict)
    """Seconds that judging took without the build, by state; hidden shapes are not included."""
    history: list[SearchTrial] = field(default_factory=list)
    """Results, in the order in which they were taken in."""
    duels: list[SearchDuel] = field(default_factory=list)
    """Comparisons, in the order in which they were made."""
    leads: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])
    """(number of evaluations, value) at each improvement of the best value."""
    lead_low: float = 0.0
    """Lower end of the 95 % interval of the best value's speedup over the reference."""
    floor_share: float = 0.0
    """Share of the device's bandwidth that the state with the best value achieves."""
    minimal: str = ""
    """Key of the confirmed best after minimising; empty before."""
    needed: set[MoveStep] = field(default_factory=set)
    """Steps that the confirmed best needs: without them it is slower or wrong."""
    led_since: tuple[str, int] = ("", 0)
    """Key of the node with the best value, and the number of evaluations when it got the lead."""
    seconds: float = 0.0
    """Seconds that the search has run."""
    stopped: str = ""
    """Reason why the search ended; empty while it goes on."""
    contests: int = 0
    """Number of comparisons with the incumbent since the search ended."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits under which the search ended, by name."""
    experience: MoveExperience = field(default_factory=MoveExperience)
    """Success rates of moves, in this search and in earlier ones."""
    asks: AskLog = field(default_factory=AskLog)
    """Requests to a writer of kernels, and what they cost and gained."""
    finished: Mapping[str, Any] | None = None
    """Content of ``result.json``; None until the search has finished."""

    @classmethod
    def begin(cls, start: str, variant: Variant) -> SearchState:
        """Return the state of a search without events."""
        risks = {start: "exact"}
        return cls(start, {start: variant}, SearchGraph(start), risks, incumbent=start)

    def take(self, event: SearchEvent) -> None:
        """Change the state by one event."""
        self.seconds, self.begun = event.seconds, True
        self.asks.take(event)
        given = event.fields
        match event.name:
            case "search":
                self.experience.begin(given.get("tactics", {}))
            case "start":
                self.starts += 1
                self.starts_s += given["wall_s"] + given["build_s"]
                if not self.start_speedup:
                    self.start_speedup = given["speedup"]
                    self.start_wall_s = given["wall_s"]
                    self.start_shown_s = given.get("shown_wall_s", given["wall_s"])
                self.host_busy = self.host_busy or given["host_busy"]
                if given.get("build"):
                    self.builds[given["build"]] = self.start
                self.noise = abs(math.log(given["speedup"] / self.start_speedup))
            case "report":
                self.report = given["log"]
            case "proposed":
                key = given["key"]
                links = [(link[0], link[1], link[2]) for link in given["links"]]
                self.graph.dispatch(links, given["node"], given["move"], given["attempt"], key)
                self.variants[key] = variant_of(given["variant"])
                self.risks[key] = given["risk"]
                self.open.append(key)
            case "repeated":
                self.duplicates += 1
                key, node, move = given["key"], given["node"], given["move"]
                self.graph.repeat(node, move, given["attempt"], key)
                at = self.graph.twins.get(key, key)
                if at in self.graph.nodes:
                    state = "" if at == key else key
                    value = self.graph.nodes[at].value
                    self.history.append(
                        SearchTrial(at, node, move, value, charged=False, state=state)
                    )
            case "pruned":
                self.pruned += 1
                self.graph.prune(given["node"], given["move"], given["attempt"], given["key"])
            case "judged":
                self._judged(given, event.seconds)
            case "duel":
                self._compared(event)
                # If the first kernel failed, it loses without a measured time, and low is 0.
                self.contests += bool(self.stopped)
                if given["decided"] == "second" and given["low"] > 1.0:
                    self.incumbent = given["second"]
                    ratio, low, high = self.proof
                    self.proof = (ratio * given["ratio"], low * given["low"], high * given["high"])
                    self.minimal, self.needed = "", set()
                else:
                    self.beaten.add(given["second"])
            case "stopped":
                self.stopped = given["reason"]
                self.limits = given["limits"]
            case "confirmed":
                self._compared(event)
            case "reduced":
                self._reduced(event)
            case "resumed":
                self.stopped, self.contests, self.finished = "", 0, None
                self.minimal, self.needed = "", set()
            case "finished":
                self.finished = given["result"]
                self.experience.written()

    def _judged(self, given: Mapping[str, Any], seconds: float) -> None:
        key, value, twin = given["key"], given["value"], given.get("twin", "")
        self.open.remove(key)
        self.evaluations += 1
        _, node, move = self.graph.in_flight[key]
        gain = 0.0 if value is None else value - self.graph.nodes[node].value
        after = last_move(self.variants[node])
        self.experience.add(after, move, gain if gain > _GAIN else 0.0)
        better = 0.0 if value is None else max(0.0, value - self.leads[-1][1])
        known = None if value is None else gain
        seconds_taken = given["build_s"] + given["wall_s"]
        self.asks.judged(key, move, given["status"], known, better, seconds_taken)
        trial = SearchTrial(
            twin or key,
            node,
            move,
            value,
            charged=True,
            state=key if twin else "",
            seconds=seconds,
            status=given["status"],
            message=given["message"],
            build_s=given["build_s"],
            judge_s=given["wall_s"],
        )
        self.history.append(trial)
        if value is None:
            why = "untimed" if trial.status == "correct" else trial.status
            self.failures[why] = self.failures.get(why, 0) + 1
        if twin:
            self.graph.join(key, twin)
            return
        self.wall_s[key] = trial.judge_s
        if given.get("build"):
            self.builds[given["build"]] = key
        self.graph.settle(key, value)
        leader = self.graph.ranked()[0].key
        if leader != self.led_since[0]:
            self.led_since = (leader, self.evaluations)
        if value is not None and value > self.leads[-1][1]:
            self.leads.append((self.evaluations, value))
            self.floor_share, self.lead_low = given["floor_share"], given["speedup_low"]

    def _compared(self, event: SearchEvent) -> None:
        if not event.fields.get("rounds"):
            return  # the outcome was known without a duel
        names = ("ratio", "low", "high", "rounds", "decided", "took_s")
        given = {name: event.fields[name] for name in names}
        self.duels.append(SearchDuel(event.name, self.evaluations, event.fields["second"], **given))

    def _reduced(self, event: SearchEvent) -> None:
        given = event.fields
        self._compared(event)
        self.variants[given["second"]] = variant_of(given["variant"])
        if given["gone"]:
            self.minimal = given["second"]
            self.risks[given["second"]] = given["risk"]
        else:
            self.needed.add(MoveStep(*given["step"]))

    @property
    def evaluated(self) -> list[SearchTrial]:
        """Results that are charged to the budget, in the order in which they were taken in."""
        return [trial for trial in self.history if trial.charged]

    def steps(self, key: str) -> str:
        """Return a state's steps in words."""
        return steps_in_words(self.variants[key].applied) or "the start"

    def twin(self, key: str, build: str) -> str | None:
        """Return the judged state with the same machine code, or None.

        Args:
            key: Key of a state that is being judged. If its risk is lower than that of the judged
                state, it is no twin, and shows that the machine code has the lower risk.
            build: Key from `kernelgym_train.mcgs.building.build_key`; empty if unknown.
        """
        other = self.builds.get(build) if build else None
        if other is None or self.is_safer(key, other):
            return None
        return other

    def is_safer(self, key: str, other: str) -> bool:
        """Return True if a state has a lower risk than another."""
        return RISKS.index(self.risks[key]) < RISKS.index(self.risks[other])

    def expected_wall_s(self, key: str) -> float:
        """Return the expected seconds of one more verdict on a state.

        Hidden shapes are assumed to add the same share of time as they do for the start.
        """
        if key not in self.wall_s or not self.start_shown_s:
            return self.start_wall_s
        return self.wall_s[key] * self.start_wall_s / self.start_shown_s

    def since_gain(self, least: float) -> int:
        """Return the number of evaluations since the best value last had a gain.

        Args:
            least: Difference from the value at the last gain that counts as a gain, in ln of the
                speedup.
        """
        gained, height = 0, 0.0
        for evaluations, value in self.leads:
            if value > height + least:
                gained, height = evaluations, value
        return self.evaluations - gained

    def may_go_on(self, budget: Budget) -> bool:
        """Return True if an ended search has something left to do.

        Args:
            budget: Limits of the resumed search.
        """
        match self.stopped:
            case "interrupted" | "writer_closed":
                return True
            case "budget_builds":
                return self.evaluations < budget.builds
            case "seconds":
                # A search ends before its limit, since time is reserved for the end: the rest is no
                # reason to go on.
                return not budget.seconds or budget.seconds > self.limits["seconds"]
            case "patience":
                least, before = budget.min_pred_gain, self.limits["min_pred_gain"]
                return (
                    not budget.patience
                    or budget.patience > self.limits["patience"]
                    or least < before
                )
            case "floor_share":
                return budget.floor_share > self.floor_share
        return False

    def challenger(self) -> str | None:
        """Return the key of the best node that may beat the incumbent, or None."""
        least = self.graph.nodes[self.incumbent].value
        for node in self.graph.ranked():
            if node.value <= least:
                return None
            if node.key not in self.beaten:
                return node.key
        return None


def value_of(verdict: Verdict, start_speedup: float) -> float | None:
    """Return ln of the speedup over the start; None if a verdict has no time."""
    if not verdict.correct or verdict.timing is None:
        return None
    return math.log(verdict.timing.speedup / start_speedup)


def plain_variant(variant: Variant) -> dict[str, Any]:
    """Return a variant as JSON."""
    return dataclasses.asdict(variant)


def variant_of(data: Mapping[str, Any]) -> Variant:
    """Return the variant of a JSON object from `plain_variant`."""
    return Variant(
        data["source"],
        data["language"],
        tuple(data["flags"]),
        tuple((name, value) for name, value in data.get("launch", [])),
        tuple(MoveStep(**step) for step in data["applied"]),
    )


def plain_state(state: SearchState) -> dict[str, Any]:
    """Return a search as JSON."""
    graph = state.graph
    nodes = {
        node.key: {
            "value": node.value,
            "best": node.best,
            "risk": state.risks[node.key],
            "applied": [
                [step.move, step.target, step.choice] for step in state.variants[node.key].applied
            ],
            "actions": {
                move: {
                    "attempts": action.attempts,
                    "failures": action.failures,
                    "passes": action.passes,
                    "visits": dict(sorted(action.visits.items())),
                }
                for move, action in sorted(node.actions.items())
                if action.attempts
            },
        }
        for node in sorted(graph.nodes.values(), key=lambda node: node.created)
    }
    return {
        "version": _VERSION,
        "start": state.start,
        "incumbent": state.incumbent,
        "evaluations": state.evaluations,
        "duplicates": state.duplicates,
        "pruned": state.pruned,
        "failures": dict(sorted(state.failures.items())),
        "seconds": state.seconds,
        "stopped": state.stopped,
        "noise": state.noise,
        "nodes": nodes,
        "failed": sorted(graph.failed),
        "open": list(state.open),
        "twins": dict(sorted(graph.twins.items())),
        "beaten": sorted(state.beaten),
    }
