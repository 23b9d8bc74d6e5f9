"""The evaluators of a service: one for each ruleset, and for timed and untimed verdicts.

Contract:

- the server's own evaluator judges jobs that name no rules, and the canary;
- rules are found by their label, name and digest; a client never sends rules itself. Known labels
  are the own rules, the shipped rulesets and their `variants`, with tolerances of a suite's own;
  limits on a kernel's run are never the client's;
- an evaluator of other rules is made when the first job needs it, and closed after it was idle for
  half an hour, or when more than a few are open.

Used by one thread, except for `check`, `capabilities` and `status`.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym.capabilities import Capabilities, DeviceHealth, EvaluatorStatus
from kernelgym.errors import UnknownName
from kernelgym.rulesets import RULESETS, Ruleset, ruleset, variants
from kernelgym.serve.refusal import Refusal
from kernelgym.types import Evaluator

_IDLE_S = 1800.0
_MOST_IDLE = 3  # the workers of an idle evaluator keep their memory

MakeEvaluator = Callable[[Ruleset, bool], Evaluator]
"""Function that makes an evaluator of a ruleset; its second argument is True for timed verdicts."""


@dataclass(slots=True)
class _Open:
    evaluator: Evaluator
    used_at: float


class Judges:
    """The evaluators of a service, one for each ruleset, and for timed and untimed verdicts.

    Args:
        own: Evaluator by the server's own rules; not closed here.
        make: Function that makes an evaluator of other rules; None to judge by the own ones alone.
    """

    def __init__(self, own: Evaluator, make: MakeEvaluator | None = None) -> None:
        self.own, self._make = own, make
        self._others: dict[tuple[str, bool], _Open] = {}

    def labels(self) -> list[str]:
        """Return the labels of the rules that jobs may name, the own one first."""
        own = self.own.capabilities.ruleset
        if self._make is None:
            return [own.label]
        shipped = [label for rules in RULESETS.values() for label in variants(rules)]
        return list(dict.fromkeys([own.label, *variants(own), *shipped]))

    def capabilities(self, label: str = "", timing: bool | None = None) -> Capabilities:
        """Return the capabilities of the evaluator for some rules.

        Args:
            label: Label of the rules; empty for the server's own.
            timing: Whether correct kernels are timed; None for what the server does by itself.

        Raises:
            Refusal: If the server has no such rules, or does not judge so.
        """
        can = self.own.capabilities
        rules, timed = self._rules(label, can.ruleset), can.timed if timing is None else timing
        if timed != can.timed and (self._make is None or timed):
            does = "times correct kernels" if can.timed else "times no kernel"
            fix = "without" if timed else "with"
            raise Refusal(
                422,
                "timing",
                f"timing={timing} was asked for; this server {does}; start it {fix} --no-timing",
            )
        return dataclasses.replace(can, ruleset=rules, timed=timed)

    def of(self, request: Mapping[str, Any]) -> Evaluator:
        """Return the evaluator that judges a stored job.

        Raises:
            Refusal: As `capabilities`.
            UsageError: If it cannot be made.
        """
        can, own = self.capabilities(request["ruleset"], request["timing"]), self.own.capabilities
        if (can.ruleset, can.timed) == (own.ruleset, own.timed):
            return self.own
        assert self._make is not None
        name = (can.ruleset.label, can.timed)
        if name not in self._others:
            self._others[name] = _Open(self._make(can.ruleset, can.timed), 0.0)
        self._others[name].used_at = time.monotonic()
        return self._others[name].evaluator

    @property
    def status(self) -> EvaluatorStatus:
        """Counts of all open evaluators, with one entry of health for each device."""
        found = [self.own.status, *(each.evaluator.status for each in list(self._others.values()))]
        by_device: dict[str, list[DeviceHealth]] = {}
        for health in (one for status in found for one in status.health):
            by_device.setdefault(health.device, []).append(health)
        return EvaluatorStatus(
            tuple(_merged(each) for each in by_device.values()),
            sum(status.hits for status in found),
            sum(status.misses for status in found),
        )

    def close_idle(self, busy: Collection[Evaluator]) -> None:
        """Close evaluators of other rules that are not used.

        Args:
            busy: Evaluators that have jobs.
        """
        now = time.monotonic()
        idle = [name for name, each in self._others.items() if each.evaluator not in busy]
        idle.sort(key=lambda name: self._others[name].used_at, reverse=True)
        for place, name in enumerate(idle):
            if place >= _MOST_IDLE or now - self._others[name].used_at >= _IDLE_S:
                # Ending workers takes seconds, in which no job would be begun.
                gone = self._others.pop(name).evaluator
                threading.Thread(target=gone.close, name="kernelgym-serve-close").start()

    def close(self) -> None:
        """Close the evaluators of other rules."""
        for each in self._others.values():
            each.evaluator.close()
        self._others.clear()

    def _rules(self, label: str, own: Ruleset) -> Ruleset:
        if label in ("", own.label):
            return own
        if self._make is not None:
            if (found := variants(own).get(label)) is not None:
                return found
            try:
                found = ruleset(label)
            except UnknownName:
                found = None
            if found is not None and found.limits in [each.limits for each in RULESETS.values()]:
                return found
        name = label.partition("@")[0]
        known = [each for each in self.labels() if each.partition("@")[0] == name]
        raise Refusal(
            422,
            "ruleset",
            f"ruleset {label!r} was asked for; this server has {', '.join(known or self.labels())}",
        )


def _merged(counts: list[DeviceHealth]) -> DeviceHealth:
    """Return the health of a device, added up over the evaluators that count it."""
    return DeviceHealth(
        counts[0].device,
        all(each.in_service for each in counts),
        sum(each.lost for each in counts),
        sum(each.moved for each in counts),
        sum(each.taken_out for each in counts),
        next((each.reason for each in counts if each.reason), ""),
    )
