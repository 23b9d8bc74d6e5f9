"""`SearchSession`: one kernel's search, with its log open for writing.

Contract: a session opens the search's log and holds it until it is closed, so that no other process
can search in the same folder. The log's existing events are applied first, so that a search that
was cut off goes on where it was. The functions that do the work take a session:
`kernelgym_train.mcgs.starting.begin`, `kernelgym_train.mcgs.controller.explore` and
`kernelgym_train.mcgs.finishing.finish`, in this order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.evaluators.abilities import Builds, Duels, Profiles
from kernelgym.evaluators.duel import Duel
from kernelgym.types import Evaluator, Kernel, Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.build_groups import BuildGroups
from kernelgym_train.mcgs.building import is_busy, turn_logs
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.events import SearchLog
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.launch_choices import launch_choices, listed_choices
from kernelgym_train.mcgs.limiting import family_of_variant, shares_of
from kernelgym_train.mcgs.moves.cpp.parallelise import PARALLELISE, parallelise
from kernelgym_train.mcgs.moves.table import known_moves
from kernelgym_train.mcgs.moves.written_knobs import WRITTEN_KNOB
from kernelgym_train.mcgs.own_file import own_diff
from kernelgym_train.mcgs.proposing import Proposer, RuleProposer
from kernelgym_train.mcgs.resuming import take_past
from kernelgym_train.mcgs.selection import SelectionContext
from kernelgym_train.mcgs.shapes import ShapesEvaluator, times_by_shape
from kernelgym_train.mcgs.source_forms import (
    holds_cuda,
    is_read,
    meta_parameter,
)
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.tactics import TacticsKey, read_tactics, tactics_path
from kernelgym_train.mcgs.task import SearchTask
from kernelgym_train.mcgs.triton.knobs import knobs_of
from kernelgym_train.mcgs.triton.limits import fits
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import (
    Variant,
    context_key,
    plain_variant,
    read_variant,
    state_key,
)
from kernelgym_train.mcgs.writing.mixing import MixedProposer

_HALF = re.compile(r"\b(float16|bfloat16|half)\b")
_HALF_BYTES, _FLOAT_BYTES = 2, 4  # of an operand of a product
_LEAST_ROUNDS = 3  # of a duel
_LAST_ROUNDS = 6  # of the last duel: 3 rounds tell little of kernels whose times vary by a tenth
_MOST_ROUNDS = 6  # of a duel after Ctrl-C
_COMPARING = 0.5  # seconds of comparisons for each other second: a third of a search's time
_FREE_S = 15.0  # seconds of comparisons that are allowed in the shortest search
_REDUCING_SHARE = 0.2  # of a limit of time, at most, for trying the best without each step


def rules_for(
    task: SearchTask,
    approximate: bool,
    moves: tuple[str, ...] = (),
    start: Variant | None = None,
) -> RuleProposer:
    """Return the proposer that makes the rules' moves, those of the task's spec included.

    Args:
        task: The task that is searched.
        approximate: Whether moves that make results less accurate are allowed.
        moves: Ids of the moves to make; all if empty.
        start: Variant that the rules start from; the task's start if None.

    Raises:
        UnknownName: If there is no such move.
    """
    start = start or read_variant(task.start, any_form=True)
    known = known_moves(start.language)
    if not known or not is_read(start.language, start.source):
        knobs = (WRITTEN_KNOB,)
        return RuleProposer(start, approximate=approximate, moves=(), static=False, more=knobs)
    more = (WRITTEN_KNOB, *launch_choices(task.spec, start.language))
    if PARALLELISE.id in known:
        more = (*more, parallelise(len(os.sched_getaffinity(0))))
    if moves:
        more = tuple(move for move in more if move.id in {*moves, WRITTEN_KNOB.id})
    made = functools.partial(RuleProposer, start, approximate=approximate, moves=moves or None)
    if PARALLELISE.id in known:
        return made(more=more)
    item_bytes = _HALF_BYTES if _HALF.search(task.problem.source) else _FLOAT_BYTES
    listed = listed_choices(task.spec)

    def fitting(variant: Variant) -> bool:
        if holds_cuda(variant.language, variant.source):
            found = {name: meta_parameter(file_of(variant).cpp, name) for name in listed}
            return all(each is None or int(each[1]) in listed[n] for n, each in found.items())
        module = read_module(variant.source)
        return fits(module, item_bytes) and all(
            knob.value in (None, *listed.get(knob.name, (knob.value,))) for knob in knobs_of(module)
        )

    return made(more=more, fits=fitting, partly=True)


class SearchSession:
    """One kernel's search, open for writing.

    Args:
        task: The task.
        evaluator: The evaluator that judges and times kernels; the session leaves it open.
        outdir: Folder of all results.
        config: Options of the search.
        alone: Whether the search's result is also the result of `outdir`.

    Raises:
        UsageError: If the evaluator does not follow the task's rules, the folder holds a search of
            another context or symbolic links, or another process has the search open.
    """

    def __init__(
        self,
        task: SearchTask,
        evaluator: Evaluator,
        outdir: Path,
        config: SearchConfig,
        *,
        alone: bool = True,
    ) -> None:
        can = evaluator.capabilities
        rules = task.rules(can.ruleset)
        if rules != can.ruleset:
            raise UsageError(
                f"{task.name} has tolerances of its own, which make the ruleset {rules.label!r}, "
                f"and the evaluator follows {can.ruleset.label!r}; give it the ruleset that "
                "spec.rules returns"
            )
        if task.shapes:
            evaluator = ShapesEvaluator(evaluator, task.problem, task.shapes)
        self.task, self.evaluator, self.config = task, evaluator, config
        self.builds = evaluator.ability(Builds)
        self.duels = evaluator.ability(Duels)
        self.profiles = evaluator.ability(Profiles) if config.ncu_every else None
        self.budget, self.say = config.budget, config.say
        self.approximate = config.approximate or task.approximate
        self.folder = SearchFolder(outdir, task.name, alone=alone)
        self.context = {
            "task": task.digest,
            "ruleset": can.ruleset.label,
            "approximate": str(self.approximate),
            # One entry a line, so that a refusal names what has changed: device, compiler, ...
            **{line.partition(" ")[0]: line for line in can.provenance},
        }
        start = read_variant(task.start, any_form=config.writer is not None)
        self.state = SearchState.begin(state_key(start), start)
        self.proposer = self._proposer()
        self.tactics_key = TacticsKey(family_of_variant(start), can.device_kind)
        self.tactics = config.tactics or tactics_path(outdir)
        self.around = SelectionContext(
            graph=self.state.graph,
            variants=self.state.variants,
            proposer=self.proposer,
            seed=config.seed,
            history=self.state.history,
            experience=self.state.experience,
            shares=functools.partial(shares_of, self.state),
            root_noise=config.root_noise,
        )
        self.together = BuildGroups(self.around) if config.together else None
        self._stop = threading.Event()
        self._by_shape: dict[tuple[str, str], Mapping[str, float]] = {}
        if not self.folder.is_begun:  # a damaged file is refused before there is a folder
            read_tactics(self.tactics)
        self.folder.check_links()
        self._log = SearchLog.open(self.folder.events)
        try:
            if self._log.past:
                take_past(self.state, self._log.past, self.context, self.folder.events)
                config.watch(self.state)
        except BaseException:
            self._log.close()
            raise
        self._began = config.clock() - self.state.seconds
        if config.writer is not None:
            asks = self.state.asks
            config.writer.add_spent(self.folder.path, asks.tokens, asks.usd)
        self.tell_report()

    def _proposer(self) -> Proposer:
        """Return the proposer by rules; with a writer, also for the kernels that it wrote."""
        config, task = self.config, self.task
        found = config.proposer or rules_for(task, self.approximate, config.moves)
        if config.writer is None:
            return found

        def rules_of(start: Variant) -> RuleProposer:
            return rules_for(task, self.approximate, config.moves, start)

        return MixedProposer(found, rules_of, self.state.variants, self.state.risks)

    def tell_report(self) -> None:
        """Give the proposer the compiler's report on the start's loops, if there is one."""
        if self.state.report is not None:
            self.proposer.take_report(self.state.report)

    @property
    def result(self) -> dict[str, Any] | None:
        """Result of the search if nothing is left to do; None otherwise."""
        if self.state.finished is None or self.state.may_go_on(self.budget):
            return None
        return dict(self.state.finished)

    def record(self, name: str, fields: Mapping[str, Any]) -> None:
        """Append an event to the log, then apply it to the state."""
        self.state.take(self._log.append(self.seconds, name, fields))
        self.config.watch(self.state)

    def propose(
        self,
        origin: Mapping[str, Any],
        variant: Variant,
        risk: str,
        predicted_gain: float | None,
        more: Mapping[str, Any],
    ) -> str | None:
        """Record a proposal; return its key, or None if it is known or expected to gain too little.

        Args:
            origin: Fields of every event: the node, the move and its attempt.
            variant: The proposed variant.
            risk: The variant's risk.
            predicted_gain: Share by which the variant is expected to be faster; None if not known.
            more: Further fields of the event, if the state will be judged.
        """
        key = state_key(variant)
        fields = {"key": key, **origin}
        if self.state.graph.knows(key):
            self.record("repeated", fields)
            return None
        if predicted_gain is not None and predicted_gain < self.budget.min_pred_gain:
            self.record("pruned", {**fields, "predicted_gain": round(predicted_gain, 6)})
            return None
        self.write_variant(key, variant, risk)
        self.record("proposed", {**fields, **more, "variant": plain_variant(variant), "risk": risk})
        return key

    def write_variant(self, key: str, variant: Variant, risk: str) -> None:
        """Write a variant's files into the search's folder."""
        context = context_key(self.context.items())
        self.folder.write_variant(key, variant, context, risk, own_diff(self.task, variant))

    def limit(self, budget: Budget) -> None:
        """Replace the limits of the search; the time since its last event is not charged."""
        self.budget = budget
        self._began = self.config.clock() - self.state.seconds

    def keep_limit(self, factor: float) -> None:
        """Keep the limit of time that ended the search, unless the new one is much longer.

        Args:
            factor: Ratio of the limits above which the new one is much longer.
        """
        if self.state.stopped == "seconds":
            before = self.state.limits["seconds"]
            if before < self.budget.seconds <= factor * before:
                self.budget = dataclasses.replace(self.budget, seconds=before)

    def stop(self) -> None:
        """Send no more kernels to the judge, whatever the limits."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def record_stop(self, reason: str) -> None:
        """Record why the search ends, and its limits."""
        self.record("stopped", {"reason": reason, "limits": dataclasses.asdict(self.budget)})

    def cut_short(self) -> None:
        """Record that Ctrl-C skipped a part of the search, which a resumed search does."""
        if self.is_stopped and self.state.stopped != "interrupted":
            self.record_stop("interrupted")

    @property
    def seconds(self) -> float:
        """Seconds that the search has run."""
        return self.config.clock() - self._began

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit; infinity without a limit."""
        return self.budget.seconds - self.seconds if self.budget.seconds else math.inf

    @property
    def end_s(self) -> float:
        """Expected seconds of the last duel and of full verdicts on the exported kernel."""
        verdicts = 1 + ((self.state.challenger() or self.state.incumbent) in self.state.unproven)
        return _LAST_ROUNDS * self.state.round_s + verdicts * self.state.best_s

    @property
    def reserve_s(self) -> float:
        """Seconds reserved for the end: `end_s`, and testing the best without each step."""
        leader = self.state.challenger() or self.state.incumbent
        steps = len(self.state.variants[leader].applied)
        return self.end_s + min(self._reducing_s * steps, _REDUCING_SHARE * self.budget.seconds)

    @property
    def _reducing_s(self) -> float:
        """Expected seconds of a duel of the best state with and without one of its steps."""
        return _LEAST_ROUNDS * min(self.state.round_s, 2 * self.state.best_s)

    @property
    def _allowed_rounds(self) -> float:
        """Number of rounds that duels may still take within the limit of time."""
        duels = [duel for duel in self.state.duels if duel.rounds]
        took_s = sum(duel.took_s for duel in duels)
        each_s = self.state.round_s
        if duels:
            each_s = took_s / sum(duel.rounds for duel in duels)
        allowed_s = max(_FREE_S, _COMPARING * (self.seconds - took_s))
        return (allowed_s - took_s) / max(each_s, 1e-3)

    def may_reduce(self) -> bool:
        """Return True if there is time for a duel of the best with and without one of its steps."""
        enough = self._allowed_rounds >= _LEAST_ROUNDS + _LAST_ROUNDS
        return enough and not self.is_stopped and self.seconds_left >= self.end_s + self._reducing_s

    def may_challenge(self) -> bool:
        """Return True if a duel with the best state leaves time for the end."""
        if self._allowed_rounds < _LEAST_ROUNDS + (_LAST_ROUNDS if self.state.duels else 0):
            return False
        return self.seconds_left >= _LEAST_ROUNDS * self.state.round_s + self.reserve_s

    @property
    def why_no_duel(self) -> str:
        """Reason why `may_challenge` or `may_reduce` returned False."""
        if self.is_stopped:
            return "the search was interrupted"
        if self._allowed_rounds < _LEAST_ROUNDS + _LAST_ROUNDS:
            return "comparisons have used up their third of the search's time"
        return "the limit of seconds leaves no time to compare them"

    def rounds_left(self, most: int, keep: float = 0.0, *, last: bool = False) -> int:
        """Return how many rounds of a duel the limits allow, from 3 to `most`.

        Args:
            most: Rounds where time has no limit.
            keep: Seconds to leave for what follows, beside one verdict on the best state.
            last: Whether the duel is the last one, for which the others leave six rounds.
        """
        kept = 0 if last else _LAST_ROUNDS
        least = _LAST_ROUNDS if last else _LEAST_ROUNDS
        most = int(max(least, min(most, self._allowed_rounds - kept)))
        if self.is_stopped:  # the user waits for the end
            return min(most, _MOST_ROUNDS)
        left = self.seconds_left - keep - self.state.best_s
        if left == math.inf:
            return most
        return max(_LEAST_ROUNDS, int(min(most, left / max(self.state.round_s, 1e-9))))

    def compare(
        self,
        name: str,
        first: str,
        second: str,
        most: int,
        *,
        variant: Variant | None = None,
        more: Callable[[Duel], Mapping[str, Any]] = lambda found: {},
    ) -> Duel:
        """Compare two states by a duel, and record the outcome.

        Args:
            name: Name of the event.
            first: Key of the first state.
            second: Key of the second state.
            most: Number of rounds at most.
            variant: The second state, if the search does not know it.
            more: Function that returns more fields of the event.
        """
        began = self.config.clock()
        one = self.state.variants[first].kernel()
        other = (variant or self.state.variants[second]).kernel()
        found = self.config.compare(
            self.evaluator,
            self.task.problem,
            one,
            other,
            most=most,
            judged=all(key in self.state.graph.nodes for key in (first, second)),
        )
        pairs = found.verdicts
        fields = {
            "first": first,
            "second": second,
            **{
                name: getattr(found, name) for name in ("ratio", "low", "high", "rounds", "decided")
            },
            "logs": turn_logs(pairs),
            "ms": self._times(first, one, other, pairs),
            "verdicts": len(pairs),
            "busy": sum(is_busy(pair) for pair in pairs),
            "took_s": round(self.config.clock() - began, 3),
        }
        if isinstance(self.evaluator, ShapesEvaluator):
            # Kept out of the log, which proposers may read: hidden shapes are secret from them.
            gains = dict(self.evaluator.gains(one, other, found.rounds))
            if first != self.state.start:
                past = self.by_shape(name, first)
                gains = {shape: gains[shape] * past[shape] for shape in gains if shape in past}
            self._by_shape[name, second] = gains
        self.record(name, {**fields, **more(found)})
        return found

    def _times(
        self,
        first: str,
        one: Kernel,
        other: Kernel,
        pairs: Sequence[tuple[Verdict, Verdict]],
    ) -> dict[str, list[float]]:
        """Return the times (ms) of the start and a kernel in the last round, by visible shape."""
        if first != self.state.start or not turn_logs(pairs[-1:]):
            return {}
        found = times_by_shape(self.evaluator, self.task.problem, (one, other), pairs[-1])
        return {name: list(times) for name, times in found.items()}

    def by_shape(self, name: str, key: str) -> Mapping[str, float]:
        """Return a state's speedup over the start by shape, from the duels of this process.

        Args:
            name: Name of the duels' event.
            key: Key of the state.
        """
        return self._by_shape.get((name, key), {})

    def close(self) -> None:
        """Close the log, so that another process can open the search."""
        self._log.close()

    def __enter__(self) -> SearchSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def stopped_by_ctrl_c(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Let the first Ctrl-C end a search in order; a second one interrupts the process.

    Args:
        stop: Function that is called once, at the first Ctrl-C.
        say: Function that is given a line for the reader at the terminal.
    """

    def interrupted(*_: object) -> None:
        say("interrupted: kernels that are being judged are finished, then the best is checked")
        stop()
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
