"""`MixedProposer`: proposals by rules for kernels that a writer wrote in part.

A writer's step replaces the whole text, so it cannot be replayed from the search's start. The state
after the last such step is a base: rules read its text anew, and the steps after it are replayed
from there. Constants that a writer marked as knobs are steps of the rules
(`kernelgym_train.mcgs.moves.written_knobs`), so that a tuner sets them.

To minimise a kernel, the changed lines of its last written text take the place of steps, after the
steps of the rules.

Contract: as of `kernelgym_train.mcgs.proposing.Proposer`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from kernelgym import Kernel, UsageError
from kernelgym_train.mcgs.knobs import KnobSpace
from kernelgym_train.mcgs.moves.definition import RISKS, Risk
from kernelgym_train.mcgs.proposing import Proposal, Proposer, RuleProposer
from kernelgym_train.mcgs.variant import MoveStep, Variant, read_variant
from kernelgym_train.mcgs.writing.asks import PREFIX, is_written
from kernelgym_train.mcgs.writing.hunks import without_each_hunk

_WITHOUT = f"{PREFIX}without"
_MOST_HUNKS = 8  # changed places of a text; each takes a comparison to minimise

_Steps = tuple[MoveStep, ...]


class MixedProposer(Proposer):
    """Proposes by rules, for the search's start and for each kernel that a writer wrote.

    Args:
        rules: Proposer of the start.
        rules_of: Function that returns the rules' proposer of another text.
        variants: Variants of all states, by key; the search adds to them.
        risks: Risks of all states, by key.
    """

    def __init__(
        self,
        rules: Proposer,
        rules_of: Callable[[Variant], RuleProposer],
        variants: Mapping[str, Variant],
        risks: Mapping[str, str],
    ) -> None:
        self._rules, self._rules_of = rules, rules_of
        self._variants, self._risks = variants, risks
        self._bases: dict[_Steps, tuple[Variant, Risk]] = {}
        self._proposers: dict[_Steps, Proposer] = {(): rules}

        self.prior_source = rules.prior_source

    def take_report(self, log: str) -> None:
        """Use the compiler's report on the start, if the start's proposer does."""
        self._rules.take_report(log)
        self.prior_source = self._rules.prior_source

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        """Return the moves that rules can make on a variant, with priors that add up to 1."""
        steps, own = _split(variant)
        return self._proposer(steps).priors(own)

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        """Return the rules' proposal with a number; None if the move has fewer proposals."""
        steps, own = _split(variant)
        return self._joined(steps, self._proposer(steps).propose(own, move, attempt))

    def simpler(self, variant: Variant) -> Sequence[Proposal]:
        """Return variants without one step of the rules, then without one changed place."""
        steps, own = _split(variant)
        found = (self._joined(steps, each) for each in self._proposer(steps).simpler(own))
        whole = [each for each in found if each is not None]
        return [*whole, *self._without_hunks(steps, own)] if steps else whole

    def _without_hunks(self, steps: _Steps, own: Variant) -> Sequence[Proposal]:
        """Return variants whose last written text lacks one of its changed places."""
        _, risk = self._base(steps)
        hunks, found = self._hunks(steps), list[Proposal]()
        for where, digest, text in hunks if 1 < len(hunks) <= _MOST_HUNKS else ():
            try:
                less = read_variant(Kernel(text, own.language), any_form=True)
                made = self._rules_of(less).replay(own.applied)
            except UsageError:
                continue  # the rest of the change is not a kernel
            if made is not None:
                variant, _ = made
                applied = (*steps, MoveStep(_WITHOUT, where, digest), *variant.applied)
                variant = dataclasses.replace(variant, applied=applied)
                found.append(Proposal(MoveStep("hunk", where, digest), variant, risk))
        return found

    def _hunks(self, steps: _Steps) -> list[tuple[str, str, str]]:
        """Return place, digest and resulting text for each change of the last written text."""
        last = max(place for place, step in enumerate(steps) if step.move != _WITHOUT)
        base, _ = self._base(steps)
        before = next((v for v in self._variants.values() if v.applied == steps[:last]), base)
        return list(without_each_hunk(before.kernel().source, base.kernel().source))

    def space(self) -> KnobSpace:
        """Return the space of all steps of the start."""
        return self._rules.space()

    def spaces(self, variants: Sequence[Variant]) -> Sequence[KnobSpace]:
        """Return the spaces that hold the given variants, each once, in their order.

        Args:
            variants: Variants of states.
        """
        found: list[KnobSpace] = []
        for steps in dict.fromkeys(_split(variant)[0] for variant in variants):
            space = self._proposer(steps).space()
            base = dataclasses.replace(space.base, applied=(*steps, *space.base.applied))
            found.append(dataclasses.replace(space, base=base))
        return found

    def values(self, space: KnobSpace, variant: Variant) -> Mapping[str, str] | None:
        """Return the choice of each knob that gives a variant, by name; None outside the space."""
        (steps, base), (there, own) = _split(space.base), _split(variant)
        if steps != there:
            return None
        return self._proposer(steps).values(dataclasses.replace(space, base=base), own)

    def tuned(self, space: KnobSpace, values: Mapping[str, str]) -> Proposal | None:
        """Return the variant that given choices of knobs make; None if there is none."""
        steps, base = _split(space.base)
        own = dataclasses.replace(space, base=base)
        return self._joined(steps, self._proposer(steps).tuned(own, values))

    def _proposer(self, steps: _Steps) -> Proposer:
        """Return a proposer by rules for the text that some steps, the last written, led to."""
        if steps not in self._proposers:
            base, _ = self._base(steps)
            self._proposers[steps] = self._rules_of(dataclasses.replace(base, applied=()))
        return self._proposers[steps]

    def _base(self, steps: _Steps) -> tuple[Variant, Risk]:
        """Return the text after some steps, the last of which a writer made, and its risk.

        A text without one of its changed places is made anew: if rules' steps follow, the search
        has judged it with them alone.
        """
        if steps not in self._bases:
            *before, last = steps
            if last.move == _WITHOUT:
                written, risk = self._base(tuple(before))
                place = last.target, last.choice
                text = next(text for *at, text in self._hunks(tuple(before)) if (*at,) == place)
                base = read_variant(Kernel(text, written.language), any_form=True)
                self._bases[steps] = dataclasses.replace(base, applied=steps), risk
            else:
                key = next(key for key, each in self._variants.items() if each.applied == steps)
                risk = next(risk for risk in RISKS if risk == self._risks[key])
                self._bases[steps] = self._variants[key], risk
        return self._bases[steps]

    def _joined(self, steps: _Steps, found: Proposal | None) -> Proposal | None:
        """Return a proposal made for a written text as a proposal of the whole search."""
        if found is None or not steps:
            return found
        applied = (*steps, *found.variant.applied)
        risk = max(found.risk, self._base(steps)[1], key=RISKS.index)
        variant = dataclasses.replace(found.variant, applied=applied)
        return Proposal(found.step, variant, risk)


def _split(variant: Variant) -> tuple[_Steps, Variant]:
    """Return the steps up to the last written one, and the variant with only the later steps."""
    applied = variant.applied
    end = max((place + 1 for place, step in enumerate(applied) if is_written(step.move)), default=0)
    return applied[:end], dataclasses.replace(variant, applied=applied[end:])
