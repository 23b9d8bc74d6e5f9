"""`SearchState`: everything that a search knows, computed from its log of events.

Contract: `SearchState.take` is the only function that changes a search's state. A running search
writes an event into its log and then applies it; a resumed search applies the events of the log
and so reaches the same state. Does no IO and reads no clock.

The value of a state is ln of its speedup over the start. Where the evaluator times kernels in
turns, each state is timed beside the start, and its value is the mean over its rounds. Otherwise it
follows from its speedup over the reference, and the start's is pooled over all of its verdicts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.events import SearchEvent
from kernelgym_train.mcgs.graph import SearchGraph
from kernelgym_train.mcgs.moves.definition import RISKS
from kernelgym_train.mcgs.tactics import MoveExperience, last_move
from kernelgym_train.mcgs.trials import SearchDuel, SearchTrial, judged_whole, leads_of
from kernelgym_train.mcgs.variant import MoveStep, Variant, steps_in_words, variant_of
from kernelgym_train.mcgs.writing.asks import AskLog

_LATEST_ROUNDS = 5  # whose seconds predict how long the next round takes
_GAIN = math.log(1.02)
_NORMAL_95 = 1.96  # standard deviations that hold 95 % of a normal distribution
_MOST_UNDECIDED = 2  # duels of one state with the best


@dataclass(slots=True)
class SearchState:
    """Everything that a search has tried, with the results."""

    start: str
    """Key of the start."""
    variants: dict[str, Variant]
    """Variants of all states that were proposed, by key."""
    graph: SearchGraph
    risks: dict[str, str] = field(default_factory=dict)
    """Risks of states, by key."""
    start_logs: list[float] = field(default_factory=list)
    """ln of the starting kernel's speedup over the reference, one for each verdict on it."""
    ruler_logs: list[float] = field(default_factory=list)
    """ln of the start's speedup over itself, one for each round; differs from 0 only by noise."""
    beside: dict[str, list[float]] = field(default_factory=dict)
    """ln of the speedup over the start, one for each round with the start, by state."""
    times: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """(start's, own) milliseconds of a call in rounds with the start, by shape that is not hidden,
    by state."""
    over: dict[str, float] = field(default_factory=dict)
    """ln of the speedup over the reference of states that were not timed with the start, by
    state."""
    start_wall_s: float = 0.0
    """Seconds of the shortest verdict on the start, without its build."""
    start_shown_s: float = 0.0
    """Seconds of `start_wall_s` that were spent at shapes which are not hidden."""
    rounds_s: list[float] = field(default_factory=list)
    """Seconds of each round with the start: of the start itself, then of the states."""
    starts_s: float = 0.0
    """Seconds that all verdicts on the start took, builds included."""
    begun: bool = False
    """Whether the log has an event."""
    starts: int = 0
    """Number of verdicts on the start, those without a time included."""
    start_after: int = 0
    """Number of evaluations before the last verdict on the start."""
    report: str | None = None
    """Report of the compiler on the start's loops; None if there is no report."""
    profiles: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Profile by state: its ``status``, ``bottlenecks`` (shares), ``values`` and ``source``."""
    profiled_at: int | None = None
    """Number of evaluations before the last profile; None before the first."""
    limits_at: dict[str, str] = field(default_factory=dict)
    """Strongest bottleneck of the state that an open proposal changes, by key; empty if it is not
    known."""
    host_busy: bool = False
    """Whether the judge found the host busy while it timed the start."""
    verdicts: int = 0
    """Number of verdicts and rounds that timed kernels of the search."""
    busy: int = 0
    """Number of those verdicts and rounds in which the judge found the host busy."""
    evaluations: int = 0
    """Number of results that are charged to the budget."""
    duplicates: int = 0
    """Number of proposals that repeated a known state."""
    pruned: int = 0
    """Number of proposals that were not judged, since their expected gain was too small."""
    failures: dict[str, int] = field(default_factory=dict)
    """Number of verdicts that gave no node, by status."""
    open: list[str] = field(default_factory=list)
    """Keys of states without a result, in the order in which they were dispatched."""
    incumbent: str = ""
    """Key of the best state that a duel has confirmed; the start at first."""
    proof: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Speedup of the incumbent over the start with both ends of its interval: products over the
    duels that led from the start to it. The interval is wider than it would be for independent
    errors."""
    beaten: set[str] = field(default_factory=set)
    """Keys of states that lost a duel, or whose duels were undecided twice."""
    unproven: set[str] = field(default_factory=set)
    """Keys of nodes without a full verdict, which were judged only in a round with the start."""
    undecided: dict[str, int] = field(default_factory=dict)
    """Number of undecided duels with the best, by the other state."""
    untimed: dict[str, int] = field(default_factory=dict)
    """Number of attempts to time a state that is correct but was never timed, by key."""
    builds: dict[str, str] = field(default_factory=dict)
    """State by the key of its machine code: the first state that has it, or a later one of less
    risk."""
    wall_s: dict[str, float] = field(default_factory=dict)
    """Seconds that judging took without the build, by state; hidden shapes are not included."""
    history: list[SearchTrial] = field(default_factory=list)
    """Results, in the order in which they were recorded."""
    duels: list[SearchDuel] = field(default_factory=list)
    """Comparisons, in the order in which they were made."""
    leads: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])
    """(number of evaluations, value) at each improvement of the best value."""
    floor_shares: dict[str, float] = field(default_factory=dict)
    """Share of the device's bandwidth that each state achieves, by key."""
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
    _tried: dict[str, tuple[str, str, float, str]] = field(default_factory=dict)
    """Arguments with which `experience` recorded each state, needed if the state is refused
    later."""
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
        """Apply one event to the state."""
        self.seconds, self.begun = event.seconds, True
        self.asks.take(event)
        given = event.fields
        match event.name:
            case "search":
                self.experience.begin(given.get("tactics", {}))
            case "start":
                self._started(given)
            case "ruler":
                self.ruler_logs += given["logs"]
                self.starts_s += given["took_s"]
                if given["logs"]:
                    self.rounds_s.append(given["took_s"] / len(given["logs"]))
                self._count(given)
            case "report":
                self.report = given["log"]
            case "profiled":
                self.profiles[given["key"]] = given
                self.profiled_at = self.evaluations
            case "proposed":
                key = given["key"]
                links = [(link[0], link[1], link[2]) for link in given["links"]]
                self.graph.dispatch(links, given["node"], given["move"], given["attempt"], key)
                self.variants[key] = variant_of(given["variant"])
                self.risks[key] = given["risk"]
                self.limits_at[key] = given.get("bottleneck", "")
                self.open.append(key)
            case "repeated":
                self.duplicates += 1
                key, node, move = given["key"], given["node"], given["move"]
                self.graph.repeat(node, move, given["attempt"], key)
                at = self.graph.twins.get(key, key)
                if at in self.graph.nodes and at not in self.graph.failed:
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
            case "timed":
                self._timed(given)
            case "proved":
                self._proved(given)
            case "duel":
                self._compared(event)
                self.contests += bool(self.stopped)
                self._duelled(given)
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
        tried = last_move(self.variants[node]), move, gain if gain > _GAIN else 0.0
        self._tried[key] = (*tried, self.limits_at.pop(key, ""))
        self.experience.add(*self._tried[key])
        better = 0.0 if value is None else max(0.0, value - self.leads[-1][1])
        known = None if value is None else gain
        seconds_taken = given["build_s"] + given["wall_s"] + given.get("round_s", 0.0)
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
            round_s=given.get("round_s", 0.0),
        )
        self.history.append(trial)
        self._count(given)
        is_untimed = value is None and trial.status == "correct"
        if value is None and not is_untimed:
            self.failures[trial.status] = self.failures.get(trial.status, 0) + 1
        if twin:
            self.graph.join(key, twin)
            return
        if given.get("whole", True):
            self.wall_s[key] = trial.judge_s
        elif value is not None:
            self.unproven.add(key)
        if given.get("build"):
            self.builds[given["build"]] = key
        if is_untimed:
            self.untimed[key] = 1
        self.graph.settle(key, value)
        self._measured(key, given)

    def _measured(self, key: str, given: Mapping[str, Any]) -> None:
        """Apply how a state was timed, from an event that holds its value."""
        value = given["value"]
        if value is None:
            return
        if logs := given.get("beside"):
            self.beside[key] = list(logs)
            self.rounds_s.append(given["round_s"] / len(logs))
            self._keep_times(key, given["ms"])
        elif given.get("speedup"):
            self.over[key] = math.log(given["speedup"])
        self.floor_shares[key] = given["floor_share"]
        self._find_leader()
        if value > self.leads[-1][1]:
            self.leads.append((self.evaluations, value))

    def _keep_times(self, key: str, given: Mapping[str, Any]) -> None:
        self.times[key] = {name: (one, own) for name, (one, own) in given.items()}

    def _find_leader(self) -> None:
        leader = self.graph.ranked()[0].key
        if leader != self.led_since[0]:
            self.led_since = (leader, self.evaluations)

    def _timed(self, given: Mapping[str, Any]) -> None:
        """Apply another attempt to time a correct state."""
        key = given["key"]
        self._count(given)
        if given["value"] is None:
            self.untimed[key] += 1
            return
        del self.untimed[key]
        self.graph.revive(key, given["value"])
        self._measured(key, given)

    def _proved(self, given: Mapping[str, Any]) -> None:
        """Apply the full verdict on a node that was judged only in a round with the start."""
        key, status = given["key"], given["status"]
        self.unproven.discard(key)
        self._count(given)
        self.wall_s[key] = given["wall_s"]
        values = {trial.value for trial in self.history if trial.key == key}
        self.history[:] = [judged_whole(trial, key, given) for trial in self.history]
        if status == "correct":
            self.floor_shares[key] = given["floor_share"]
            return
        self.failures[status] = self.failures.get(status, 0) + 1
        self.graph.refuse(key)
        self.leads[1:] = [each for each in self.leads[1:] if each[1] not in values]
        self.leads = leads_of(self.history, self.leads)
        self.experience.take_back(*self._tried[key])
        self._find_leader()

    def _started(self, given: Mapping[str, Any]) -> None:
        """Apply a verdict on the start, which changes the values that depend on its speedup."""
        self.starts_s += given["wall_s"] + given["build_s"]
        # The first verdict also starts processes and examines the problem.
        if not self.starts or given["wall_s"] < self.start_wall_s:
            self.start_wall_s = given["wall_s"]
            self.start_shown_s = given.get("shown_wall_s", given["wall_s"])
        self.starts += 1
        if given["speedup"]:  # a busy host may leave it untimed
            self.start_logs.append(math.log(given["speedup"]))
        self.start_after = self.evaluations
        self.host_busy = self.host_busy or given["host_busy"]
        self._count(given)
        if given.get("build"):
            self.builds[given["build"]] = self.start
        if self.over and self.start_logs:
            zero = math.log(self.start_speedup)
            self.graph.revalue({key: log - zero for key, log in self.over.items()})
            self._find_leader()

    def _duelled(self, given: Mapping[str, Any]) -> None:
        """Apply the event of a kernel's timed comparison with the best kernel so far."""
        key = given["second"]
        # If the first kernel failed, it loses without a measured time, and low is 0.
        if given["decided"] == "second" and given["low"] > 1.0:
            self.incumbent = key
            ratio, low, high = self.proof
            self.proof = (ratio * given["ratio"], low * given["low"], high * given["high"])
            self.minimal, self.needed = "", set()
        elif given["decided"] == "neither":
            self.undecided[key] = self.undecided.get(key, 0) + 1
            if self.undecided[key] >= _MOST_UNDECIDED or not given["ratio"]:
                self.beaten.add(key)
            self.led_since = (self.led_since[0], self.evaluations)  # compared again later
        else:
            self.beaten.add(key)
        if (logs := given.get("logs")) and key in self.beside:
            # Rounds with another state than the start tell as much: its own value is added.
            by = self.graph.nodes[given["first"]].value
            self.beside[key] += [by + log for log in logs]
            self.graph.revalue({key: statistics.fmean(self.beside[key])})
            self._find_leader()

    def _count(self, given: Mapping[str, Any]) -> None:
        """Count the verdicts and rounds of an event, and those that found the host busy."""
        self.verdicts += given.get("verdicts", 1)
        self.busy += given.get("busy", 0)

    @property
    def floor_share(self) -> float:
        """Share of the device's bandwidth that the state with the best value achieves."""
        return self.floor_shares.get(self.led_since[0], 0.0)

    @property
    def start_speedup(self) -> float:
        """Speedup of the start over the reference, pooled over its verdicts; 0.0 before them."""
        return math.exp(statistics.fmean(self.start_logs)) if self.start_logs else 0.0

    @property
    def noise(self) -> float:
        """Standard deviation of one measurement of a state's value.

        Rounds of the start beside itself show it, where there are any; its true value is 0. Else it
        is that of the start's verdicts, which also measure the start less well than the pool.
        """
        if self.ruler_logs:
            return math.sqrt(statistics.fmean(log * log for log in self.ruler_logs))
        return statistics.stdev(self.start_logs) if len(self.start_logs) > 1 else 0.0

    def reach(self, key: str) -> float:
        """Return half of the 95 % interval of a state's value."""
        return _NORMAL_95 * self.noise / math.sqrt(max(1, len(self.beside.get(key, ()))))

    def _compared(self, event: SearchEvent) -> None:
        if not event.fields.get("rounds"):
            return  # the outcome was known without a duel
        fields = event.fields
        names = ("ratio", "low", "high", "rounds", "decided", "took_s", "busy")
        given = {name: fields[name] for name in names if name in fields}
        duel = SearchDuel(event.name, fields["first"], self.evaluations, fields["second"], **given)
        self.duels.append(duel)
        self._count(fields)
        if fields.get("ms"):  # with the start
            self._keep_times(fields["second"], fields["ms"])

    def _reduced(self, event: SearchEvent) -> None:
        given = event.fields
        self._compared(event)
        if given["gone"] or given["second"] not in self.variants:
            self.variants[given["second"]] = variant_of(given["variant"])
        if given["gone"]:
            self.minimal = given["second"]
            self.risks[given["second"]] = given["risk"]
        else:
            self.needed.add(MoveStep(*given["step"]))

    @property
    def evaluated(self) -> list[SearchTrial]:
        """Results that are charged to the budget, in the order in which they were recorded."""
        return [trial for trial in self.history if trial.charged]

    def steps(self, key: str) -> str:
        """Return a state's steps in words."""
        return steps_in_words(self.variants[key].applied) or "the start"

    def twin(self, key: str, build: str) -> str | None:
        """Return the judged state with the same machine code, or None.

        Args:
            key: Key of a state that is being judged. If its risk is lower than that of the judged
                state, it is not a twin, and shows that the machine code has the lower risk.
            build: Key from `kernelgym_train.mcgs.building.build_key`; empty if unknown.
        """
        other = self.builds.get(build) if build else None
        if other is None or self.is_safer(key, other):
            return None
        return other

    def is_safer(self, key: str, other: str) -> bool:
        """Return True if a state has a lower risk than another."""
        return RISKS.index(self.risks[key]) < RISKS.index(self.risks[other])

    @property
    def best_s(self) -> float:
        """Expected seconds of one verdict on the best state."""
        return self.expected_wall_s(self.challenger() or self.incumbent)

    @property
    def round_s(self) -> float:
        """Expected seconds of one round of a duel between the best state and the start.

        It is taken from the latest rounds, if any, which take less time than full verdicts.
        """
        if self.rounds_s:
            return statistics.median(self.rounds_s[-_LATEST_ROUNDS:])
        return self.start_wall_s + self.best_s

    def expected_wall_s(self, key: str) -> float:
        """Return the expected seconds of one more verdict on a state.

        Hidden shapes are assumed to add the same share of time as they do for the start.
        """
        if key not in self.wall_s or not self.start_shown_s:
            return self.start_wall_s
        return self.wall_s[key] * self.start_wall_s / self.start_shown_s

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
                return budget.floor_share > float(self.limits["floor_share"])
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
