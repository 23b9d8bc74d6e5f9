"""`AskLog`: requests of a search to writers and their outcomes, computed from its log of events.

Contract: an ``asked`` event stands in the log before its request is made, with the request's worst
case in tokens and US dollars; the event with the answer (``proposed``, ``repeated``, ``pruned`` or
``answered``) has a field ``answer``. A request without an answer, as a kill leaves it, counts at
its worst case. Pure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym_train.mcgs.events import SearchEvent

RULES, WRITER = "rules", "writer"
PREFIX = "written:"
"""Beginning of the ids of moves that a writer makes, not the rules."""


def is_written(move: str) -> bool:
    """Return True if a writer makes the move with this id."""
    return move.startswith(PREFIX)


@dataclass(slots=True)
class Ask:
    """One request to a writer of kernels, and its outcome."""

    number: int
    """Number of the request, from 0."""
    node: str
    """Key of the state whose kernel the writer is to make faster."""
    move: str
    """Id of the move that was asked for, with `PREFIX`."""
    digest: str
    """Digest of the prompt."""
    worst_tokens: int
    """Largest possible number of tokens of the request and its answer."""
    worst_usd: float
    """Largest possible cost in US dollars; 0 without a price."""
    repairs: int | None = None
    """Number of the earlier request whose failure this request repairs; None if it repairs none."""
    depth: int = 0
    """Number of repairs in a row before this request."""
    outcome: str = ""
    """``proposed``, ``repeated``, ``pruned``, ``refused`` or ``failed``; empty without an
    answer."""
    fault: str = ""
    """Kind of the fault of a refused answer."""
    message: str = ""
    """Reason why the answer was refused or failed."""
    key: str = ""
    """Key of the proposed state; empty if the answer gave none."""
    tokens: int = 0
    """Number of tokens that were read and sampled for the answer."""
    usd: float | None = None
    """Cost of the answer in US dollars; None if no price is known."""
    seconds: float = 0.0
    """Seconds from the request to the answer."""
    lost: int = 0
    """Number of times that the process was killed before the answer came; each counts at the worst
    case."""
    cached: bool = False
    """Whether the answer was in the cache on disk, and cost nothing."""
    predicted_gain: float | None = None
    """Share by which the writer expected its kernel to be faster than the one it changed."""
    summary: str = ""
    """The writer's description of the change."""
    gain: float | None = None
    """Natural logarithm of the measured speedup over the changed kernel; None without a time."""
    status: str = ""
    """Status of the verdict; empty without one."""


@dataclass(slots=True)
class AskLog:
    """Requests of a search to its writer, with their costs and gains."""

    asks: list[Ask] = field(default_factory=list)
    """Requests in the order in which they were made."""
    by_key: dict[str, Ask] = field(default_factory=dict)
    """Requests whose kernel was sent to the judge, by the state's key."""
    closed: str = ""
    """Reason why the writer gets no more requests; empty while requests are made."""
    arms: list[tuple[str, float, float]] = field(default_factory=list)
    """(`RULES` or `WRITER`, gain over the best so far in ln, seconds) of each attempt to find a
    faster kernel."""

    def take(self, event: SearchEvent) -> None:
        """Apply an event of the search; events that concern no request change nothing."""
        given = event.fields
        if event.name == "asked" and given["ask"] < len(self.asks):
            self.asks[given["ask"]].lost += 1
        elif event.name == "asked":
            before = given["repairs"]
            depth = 0 if before is None else self.asks[before].depth + 1
            asked = {name: value for name, value in given.items() if name != "ask"}
            self.asks.append(Ask(given["ask"], **asked, depth=depth))
        elif event.name == "writer_closed":
            self.closed = given["reason"]
        elif event.name == "resumed":
            self.closed = ""
        if (answer := given.get("answer")) is not None:
            self._answered(event.name, answer, str(given.get("key", "")))

    def _answered(self, name: str, answer: Mapping[str, Any], key: str) -> None:
        told = {"outcome": name, **answer, "key": key}
        number = told.pop("ask")
        ask = self.asks[number] = dataclasses.replace(self.asks[number], **told)
        if ask.outcome == "proposed":
            self.by_key[key] = ask
        else:
            self.arms.append((WRITER, 0.0, ask.seconds))

    def judged(
        self,
        key: str,
        move: str,
        status: str,
        gain: float | None,
        better: float,
        seconds: float,
    ) -> None:
        """Apply the verdict on a written kernel.

        Args:
            key: Key of the state.
            move: Id of the move that made it.
            status: Status of the verdict.
            gain: ln of the speedup over the state that was changed; None without a time.
            better: ln of the speedup over the best so far; 0 if the state is slower.
            seconds: Seconds of the build, the verdict and the rounds with the start.
        """
        ask = self.by_key.get(key)
        arm = WRITER if ask is not None or is_written(move) else RULES
        self.arms.append((arm, better, seconds + (0.0 if ask is None else ask.seconds)))
        if ask is not None:
            ask.status, ask.gain = status, gain

    @property
    def open(self) -> list[Ask]:
        """Requests without an answer."""
        return [ask for ask in self.asks if not ask.outcome]

    @property
    def tokens(self) -> int:
        """Number of tokens read and sampled; a request without an answer counts its worst case."""
        return sum(
            (ask.tokens if ask.outcome else ask.worst_tokens) + ask.lost * ask.worst_tokens
            for ask in self.asks
        )

    @property
    def usd(self) -> float:
        """US dollars spent; a request without an answer counts its worst case."""
        return sum(
            ((ask.usd or 0.0) if ask.outcome else ask.worst_usd) + ask.lost * ask.worst_usd
            for ask in self.asks
        )

    def in_a_row(self, *outcomes: str) -> int:
        """Return how many of the latest answered requests in a row have these outcomes."""
        answered = [ask.outcome for ask in self.asks if ask.outcome]
        return sum(1 for _ in itertools.takewhile(outcomes.__contains__, reversed(answered)))

    def to_repair(self, most: int) -> Ask | None:
        """Return the latest request whose failure may be repaired, or None.

        Args:
            most: Number of repairs of one kernel, one after the other.
        """
        repaired = {ask.repairs for ask in self.asks}
        for ask in reversed(self.asks):
            if ask.number in repaired or ask.depth >= most:
                continue
            if ask.outcome == "refused" or (ask.status and ask.status not in _NO_FAULT):
                return ask
        return None

    def at(self, node: str) -> list[Ask]:
        """Return the requests to make a given state's kernel faster."""
        return [ask for ask in self.asks if ask.node == node]

    def plain(self) -> dict[str, Any]:
        """Return counts, costs and the error of predicted gains as JSON.

        ``prediction`` compares ln(1 + predicted gain) with ln of the measured speedup over what was
        changed: its ``bias`` is the mean difference, above 0 if too much was expected, and
        ``error`` the mean absolute difference.
        """
        outcomes: dict[str, int] = {}
        for ask in self.asks:
            outcome = ask.outcome or "open"
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        known = [ask.usd for ask in self.asks if ask.usd is not None]
        errors = [
            math.log1p(ask.predicted_gain) - ask.gain
            for ask in self.asks
            if ask.predicted_gain is not None and ask.gain is not None
        ]
        return {
            "requests": len(self.asks),
            "outcomes": dict(sorted(outcomes.items())),
            "repairs": sum(ask.repairs is not None for ask in self.asks),
            "cached": sum(ask.cached for ask in self.asks),
            "tokens": self.tokens,
            "usd": round(self.usd, 6) if known or self.usd else None,
            "seconds": round(sum(ask.seconds for ask in self.asks), 1),
            "closed": self.closed,
            "prediction": {
                "count": len(errors),
                "bias": round(statistics.fmean(errors), 4) if errors else None,
                "error": round(statistics.fmean(map(abs, errors)), 4) if errors else None,
            },
        }


_NO_FAULT = ("correct", "same_code", "unavailable")
