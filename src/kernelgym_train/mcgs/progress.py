"""`Progress`: a search as it stands, folded from its events.

Contract: `Progress.take` is the only place where a search's state changes. The live search writes
an event and takes it in; a resumed one takes in what the log holds, and is where the other was.
Does no IO and asks no clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym.types import Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.events import Event
from kernelgym_train.mcgs.graph import Graph
from kernelgym_train.mcgs.moves.definition import RISKS
from kernelgym_train.mcgs.tactics import Experience, last_move
from kernelgym_train.mcgs.variant import Step, Variant

__all__ = ["Progress", "Tried", "plain_variant", "value_of", "variant_of"]

_GAIN = math.log(1.02)


@dataclass(frozen=True, slots=True)
class Tried:
    """One result, or a proposal of a state with a result."""

    key: str
    node: str
    """Key of the node that the move was made at."""
    move: str
    value: float | None
    """ln of the speedup over the start's; None for a failure."""
    charged: bool
    """False for a proposal of a known state."""
    state: str = ""
    """Key of the state that was proposed, where its code is that of the node `key`."""


@dataclass(slots=True)
class Progress:
    """What has been tried, and what came of it."""

    start: str
    """Key of the start."""
    variants: dict[str, Variant]
    """By key: of all states that were proposed."""
    graph: Graph
    risks: dict[str, str] = field(default_factory=dict)
    """Risk of each state."""
    start_speedup: float = 0.0
    """The start's over the reference, by its first verdict; 0.0 until there is one."""
    start_wall_s: float = 0.0
    """Time that judging the start took, without its build."""
    start_shown_s: float = 0.0
    """Of that, the time that its verdict tells: what it took at shapes that are not kept secret."""
    begun: bool = False
    """Whether there is an event."""
    starts: int = 0
    """Verdicts on the start."""
    report: str | None = None
    """What the start's compiler said of its loops; None if it was not asked."""
    noise: float = 0.0
    """How far two verdicts on the start lie apart: abs(ln of their ratio)."""
    host_busy: bool = False
    """True if the judge found the host busy while it timed the start."""
    evaluations: int = 0
    """Results that are charged to the budget."""
    duplicates: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Verdicts that gave no node, by status."""
    open: list[str] = field(default_factory=list)
    """Keys without a result, in the order in which they were dispatched."""
    incumbent: str = ""
    """Key of the best state that a duel has confirmed; the start at first."""
    proof: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Its (ratio, low, high) over the start: the product over the duels from the start to it. That
    of the intervals' ends is wider than independent errors need."""
    beaten: set[str] = field(default_factory=set)
    """Keys that a duel has not confirmed."""
    builds: dict[str, str] = field(default_factory=dict)
    """Key of what was built: key of the first state with that machine code, or of a later one of
    less risk."""
    wall_s: dict[str, float] = field(default_factory=dict)
    """Time that judging took, without the build, by key, as far as verdicts tell it."""
    history: list[Tried] = field(default_factory=list)
    """Results, in the order in which they were taken in."""
    leads: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])
    """(evaluations, value) when a better value than all before came to be."""
    floor_share: float = 0.0
    """Share of the device's bandwidth that the node with the best value achieves."""
    minimal: str = ""
    """Key of the confirmed best without steps that it does not need; empty if none is known."""
    needed: set[Step] = field(default_factory=set)
    """Steps without which that best is slower, or wrong."""
    led_since: tuple[str, int] = ("", 0)
    """The node with the best value, and how many evaluations there were when it came to be."""
    seconds: float = 0.0
    stopped: str = ""
    """Why the search ended; empty while it goes on."""
    contests: int = 0
    """Comparisons with the incumbent since then."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits under which it ended."""
    experience: Experience = field(default_factory=Experience)
    """What moves came to, in this search and before it."""
    finished: Mapping[str, Any] | None = None
    """The result, once it is written."""

    @classmethod
    def begin(cls, start: str, variant: Variant) -> Progress:
        """Return a search that has done nothing."""
        risks = {start: "exact"}
        return cls(start, {start: variant}, Graph(start), risks, incumbent=start)

    def take(self, event: Event) -> None:
        """Take in one event."""
        self.seconds, self.begun = event.seconds, True
        given = event.fields
        match event.name:
            case "search":
                self.experience.begin(given.get("tactics", {}))
            case "start":
                self.starts += 1
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
                    self.history.append(Tried(at, node, move, value, charged=False, state=state))
            case "judged":
                self._judged(given)
            case "duel":
                # A first kernel that failed loses with no time measured: low is 0 then.
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
            case "reduced":
                self._reduced(given)
            case "resumed":
                self.stopped, self.contests, self.finished = "", 0, None
                self.minimal, self.needed = "", set()
            case "finished":
                self.finished = given["result"]
                self.experience.written()

    def _judged(self, given: Mapping[str, Any]) -> None:
        key = given["key"]
        self.open.remove(key)
        self.evaluations += 1
        _, node, move = self.graph.in_flight[key]
        gained = given["value"] is not None
        gained = gained and given["value"] > self.graph.nodes[node].value + _GAIN
        self.experience.add(last_move(self.variants[node]), move, gained)
        if given.get("twin"):
            twin = given["twin"]
            self.history.append(Tried(twin, node, move, given["value"], charged=True, state=key))
            self.graph.join(key, twin)
            if given["value"] is None:
                self.failures[given["status"]] = self.failures.get(given["status"], 0) + 1
            return
        self.wall_s[key] = given["wall_s"]
        if given.get("build"):
            self.builds[given["build"]] = key
        self.history.append(Tried(key, node, move, given["value"], charged=True))
        self.graph.settle(key, given["value"])
        if given["value"] is None:
            why = given["status"] if given["status"] != "correct" else "untimed"
            self.failures[why] = self.failures.get(why, 0) + 1
        leader = self.graph.ranked()[0].key
        if leader != self.led_since[0]:
            self.led_since = (leader, self.evaluations)
        if given["value"] is not None and given["value"] > self.leads[-1][1]:
            self.leads.append((self.evaluations, given["value"]))
            self.floor_share = given["floor_share"]

    def _reduced(self, given: Mapping[str, Any]) -> None:
        if given["gone"]:
            key = self.minimal = given["second"]
            self.variants[key] = variant_of(given["variant"])
            self.risks[key] = given["risk"]
        else:
            self.needed.add(Step(*given["step"]))

    def twin(self, key: str, build: str) -> str | None:
        """Return the judged state with the same machine code, or None.

        Args:
            key: Of a state that is being judged. One of less risk than the other is no twin: it
                shows that the risk was none.
            build: From `kernelgym_train.mcgs.building.build_key`; empty if unknown.
        """
        other = self.builds.get(build) if build else None
        if other is None or self.is_safer(key, other):
            return None
        return other

    def is_safer(self, key: str, other: str) -> bool:
        """Return True if a state has less risk than another."""
        return RISKS.index(self.risks[key]) < RISKS.index(self.risks[other])

    def expected_wall_s(self, key: str) -> float:
        """Return the seconds that one more verdict on a state takes.

        At shapes that are kept secret it takes as much longer as the start does.
        """
        if key not in self.wall_s or not self.start_shown_s:
            return self.start_wall_s
        return self.wall_s[key] * self.start_wall_s / self.start_shown_s

    def since_gain(self, least: float) -> int:
        """Return the evaluations since the last gain.

        Args:
            least: By how much a value must exceed the last one that did, to count as a gain.
        """
        gained, height = 0, 0.0
        for evaluations, value in self.leads:
            if value > height + least:
                gained, height = evaluations, value
        return self.evaluations - gained

    def may_go_on(self, budget: Budget) -> bool:
        """Return True if an ended search has something left to do.

        Args:
            budget: The limits now.
        """
        match self.stopped:
            case "interrupted":
                return True
            case "budget_builds":
                return self.evaluations < budget.builds
            case "seconds":
                # A search ends before its limit is met: the reserve is no time to go on with.
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
        """Return the best node that may beat the incumbent, or None."""
        least = self.graph.nodes[self.incumbent].value
        for node in self.graph.ranked():
            if node.value <= least:
                return None
            if node.key not in self.beaten:
                return node.key
        return None


def value_of(verdict: Verdict, start_speedup: float) -> float | None:
    """Return ln(speedup over the start); None if a verdict gives none."""
    if not verdict.correct or verdict.timing is None:
        return None
    return math.log(verdict.timing.speedup / start_speedup)


def plain_variant(variant: Variant) -> dict[str, Any]:
    """Return a variant as JSON."""
    return dataclasses.asdict(variant)


def variant_of(data: Mapping[str, Any]) -> Variant:
    """Return the variant that `plain_variant` wrote."""
    return Variant(
        data["source"],
        data["language"],
        tuple(data["flags"]),
        tuple((name, value) for name, value in data.get("launch", [])),
        tuple(Step(**step) for step in data["applied"]),
    )
