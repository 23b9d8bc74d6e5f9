"""Proposers: objects that say which variants can be made from a variant.

`RuleProposer` needs no model. A variant is its start and a set of steps; to make a move it adds a
step to the set and replays all of them in the order of their moves, structure before directives
before flags. So a directive can be added before or after the loops that it concerns were
reordered, both ways lead to one state, and the precondition of each step is proven again in the
changed text.

Contract: a proposer reads the variant, and the compiler's report on the start, which the search
gives it before it asks for proposals. Proposals are numbered from 0, and the same variant,
move and number give the same proposal. If a proposal repeats a known state, the search refuses it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelgym import UnknownName, UsageError
from kernelgym_train.mcgs.knobs import ABSENT, Knob, KnobSpace
from kernelgym_train.mcgs.moves.definition import RISKS, Realisation, Risk, SearchMove
from kernelgym_train.mcgs.moves.table import known_moves
from kernelgym_train.mcgs.static_priors import VectorReport, read_report, static_weights
from kernelgym_train.mcgs.variant import MoveStep, Variant


@dataclass(frozen=True, slots=True)
class Proposal:
    """Variant to try, with the step that makes it from another variant."""

    step: MoveStep
    variant: Variant
    risk: Risk
    """Highest risk of the variant's steps."""


class Proposer(Protocol):
    """Base class of proposers: objects that propose variants, without knowing verdicts."""

    prior_source: str = "uniform"
    """Origin of the priors: ``static``, ``static+report``, ``moves`` or ``uniform``."""

    def take_report(self, log: str) -> None:
        """Use the compiler's report on the start's loops; the default ignores it."""

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        """Return the moves that can be made on a variant, with priors that add up to 1."""

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        """Return the proposal with a given number of a move; None if the move has fewer."""

    def simpler(self, variant: Variant) -> Sequence[Proposal]:
        """Return one variant for each step, without that step; the proposal names the step."""

    def space(self) -> KnobSpace:
        """Return the space of all possible steps from the start kernel; each step is a knob."""

    def spaces(self, variants: Sequence[Variant]) -> Sequence[KnobSpace]:
        """Return the knob spaces that contain the variants; by default only `space()`."""
        return (self.space(),)

    def values(self, space: KnobSpace, variant: Variant) -> Mapping[str, str] | None:
        """Return the choice of each knob that gives a variant, by name; None outside the space."""

    def tuned(self, space: KnobSpace, values: Mapping[str, str]) -> Proposal | None:
        """Return the variant that given choices of knobs make; None if there is none."""


class RuleProposer(Proposer):
    """Proposes variants by the rules of `kernelgym_train.mcgs.moves`, without a model.

    Args:
        start: Variant that the search starts from.
        approximate: Whether moves that make results less accurate may be made.
        moves: Ids of the moves to use; all if None.
        static: Whether priors depend on the kernel's text; if not, they are the moves' own weights.
        more: Moves of the task or of the machine, which are added or replace the move with the same
            id.
        fits: Function that returns False for a variant that the device cannot run.
        partly: Whether a setting of a space leaves out the steps that others make impossible; if
            not, there is no variant for such a setting.

    Raises:
        UnknownName: If there is no such move.
        UsageError: If no move is for the start's language.
    """

    def __init__(
        self,
        start: Variant,
        *,
        approximate: bool = False,
        moves: Collection[str] | None = None,
        static: bool = True,
        more: Sequence[SearchMove] = (),
        fits: Callable[[Variant], bool] = lambda variant: True,
        partly: bool = False,
    ) -> None:
        known = known_moves(start.language)
        for name in moves or ():
            if name not in known:
                raise UnknownName("move", name, known)
        self._start, self._static = dataclasses.replace(start, applied=()), static
        self.prior_source = "static" if static else "moves"
        self._report: VectorReport | None = None
        self._fits, self._partly = fits, partly
        self._most = RISKS.index("approximate" if approximate else "reassociates")
        self._moves = {
            move.id: move
            for move in known.values()
            if (moves is None or move.id in moves) and (approximate or move.risk != "approximate")
        }
        self._moves |= {move.id: move for move in more}
        if not self._moves:
            raise UsageError(f"no move is known for kernels in {start.language!r}")
        self._offered = functools.lru_cache(maxsize=4096)(self._offered)  # type: ignore[method-assign]
        self._proposals = functools.lru_cache(maxsize=4096)(self._proposals)  # type: ignore[method-assign]
        self.priors = functools.lru_cache(maxsize=4096)(self.priors)  # type: ignore[method-assign]
        self._knobs = functools.cache(self._all_knobs)

    def take_report(self, log: str) -> None:
        """Use the compiler's report on the start for the priors as well.

        Args:
            log: Log of a build with `kernelgym_train.mcgs.static_priors.REPORT_FLAG`.
        """
        if self._static:
            self._report = read_report(self._start, log)
            self.prior_source = "static+report"
            self.priors.cache_clear()  # type: ignore[attr-defined]

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        """Return the moves that can be made on a variant, each with a positive prior."""
        fit = [move for move in self._moves.values() if self._proposals(variant.applied, move.id)]
        weights = {move.id: move.weight for move in fit}
        if self._static:
            weights = static_weights(variant, weights, self._report)
        total = sum(weights.values())
        return tuple((name, weight / total) for name, weight in weights.items())

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        """Return the proposal with a given number of a move; None if the move has fewer."""
        proposals = self._proposals(variant.applied, move)
        return proposals[attempt] if attempt < len(proposals) else None

    def simpler(self, variant: Variant) -> Sequence[Proposal]:
        """Return one variant for each step, without that step; the last step comes first."""
        found = []
        for step in reversed(variant.applied):
            made = self.replay([other for other in variant.applied if other != step])
            if made is not None:
                found.append(Proposal(step, *made))
        return found

    def space(self) -> KnobSpace:
        """Return the space of all possible steps from the start kernel; each step is a knob."""
        return KnobSpace(self._start, self._knobs())

    def values(self, space: KnobSpace, variant: Variant) -> Mapping[str, str] | None:
        """Return the choice of each knob that gives a variant, by name; None outside the space."""
        places = {_place(knob): knob for knob in space.knobs}
        fixed = [
            {step for step in each.applied if (step.move, step.target) not in places}
            for each in (space.base, variant)
        ]
        if fixed[0] != fixed[1]:
            return None
        made = {(step.move, step.target): step.choice for step in variant.applied}
        values = {knob.name: made.get(place, ABSENT) for place, knob in places.items()}
        fits = all(values[knob.name] in knob.choices for knob in space.knobs)
        return values if fits else None

    def tuned(self, space: KnobSpace, values: Mapping[str, str]) -> Proposal | None:
        """Return the variant that given choices of knobs make; None if there is none."""
        places = {_place(knob): values[knob.name] for knob in space.knobs}
        steps = [step for step in space.base.applied if (step.move, step.target) not in places]
        steps += [MoveStep(*place, choice) for place, choice in places.items() if choice != ABSENT]
        made = self.replay(steps, partly=self._partly)
        if made is None:
            return None
        told = ", ".join(f"{name}={value}" for name, value in values.items() if value != ABSENT)
        return Proposal(MoveStep("tune", "knobs", told), *made)

    def replay(
        self, steps: Sequence[MoveStep], *, partly: bool = False
    ) -> tuple[Variant, Risk] | None:
        """Return the start kernel after a list of steps; None if one of them cannot be made.

        Args:
            steps: The steps.
            partly: Whether a step that cannot be made is left out instead.
        """
        variant, risk, kept = self._start, 0, list[MoveStep]()
        for step in self._ordered(steps):
            found = next(
                (
                    each
                    for each in self._offered(step.move, variant)
                    if (each.target, each.choice) == (step.target, step.choice)
                ),
                None,
            )
            if found is None or RISKS.index(found.risk) > self._most:
                if partly:
                    continue
                return None
            kept.append(step)
            variant, risk = found.variant, max(risk, RISKS.index(found.risk))
        if not self._fits(variant):
            return None
        return dataclasses.replace(variant, applied=tuple(kept)), RISKS[risk]

    def _all_knobs(self) -> tuple[Knob, ...]:
        found: list[Knob] = []
        for move in self._moves.values():
            choices: dict[str, list[str]] = {}
            for each in self._offered(move.id, self._start):
                if RISKS.index(each.risk) <= self._most:
                    choices.setdefault(each.target, [ABSENT]).append(each.choice)
            found += [
                Knob(f"{move.id}/{target}", tuple(each), move.tried_first)
                for target, each in choices.items()
            ]
        return tuple(found)

    def _ordered(self, steps: Sequence[MoveStep]) -> tuple[MoveStep, ...]:
        return tuple(sorted(steps, key=lambda step: (self._moves[step.move].phase, step)))

    def _offered(self, move: str, variant: Variant) -> tuple[Realisation, ...]:
        plain = dataclasses.replace(variant, applied=())
        return tuple(self._moves[move].realise(plain))

    def _proposals(self, steps: tuple[MoveStep, ...], name: str) -> tuple[Proposal, ...]:
        """Return every proposal of a move, in the order of its realisations."""
        move = self._moves[name]
        before = [step for step in steps if self._moves[step.move].phase < move.phase]
        same = [step for step in steps if step.move == name]
        places = [self.replay(before)]
        places += [self.replay([*before, *same])] if same else []
        found: dict[MoveStep, Proposal] = {}
        for place in places:
            if place is None:
                continue
            for each in self._offered(name, place[0]):
                step = MoveStep(name, each.target, each.choice)
                if step in steps or step in found:
                    continue
                kept = [other for other in steps if not _excludes(step, other, move)]
                made = self.replay([*kept, step])
                if made is not None:
                    found[step] = Proposal(step, *made)
        return tuple(found.values())


def _place(knob: Knob) -> tuple[str, str]:
    """Return the move and the place in the kernel that a proposal of a knob stands for."""
    move, _, target = knob.name.partition("/")
    return move, target


def _excludes(step: MoveStep, other: MoveStep, move: SearchMove) -> bool:
    """Return True if one step replaces another, as the same move at the same place."""
    return other.move == move.id and other.target == step.target
