"""`tpe`: tunes all steps that the start allows as one space of choices.

The algorithm draws the first 20 results of a space at random, the next 20 by Optuna's TPE, and then
changes one knob of a good result. Settings that were judged already are skipped, and cost nothing.
Where moves change a whole kernel, each way to make one is tried alone first, and what fails alone
is combined with nothing. Random settings then keep four fifths of the best one's choices, since few
other combinations are good.

Contract: as of `kernelgym_train.mcgs.selection`. Optuna draws from a generator that is seeded anew
for each proposal, by the search's seed and the number of proposals before, so that a search that
was cut off goes on as if it had not been.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelgym_train.mcgs.bottleneck_priors import relief
from kernelgym_train.mcgs.knobs import ABSENT, Knob, KnobSpace
from kernelgym_train.mcgs.proposing import Proposal
from kernelgym_train.mcgs.selection import SearchChoice, SelectionContext, best_first, stream
from kernelgym_train.mcgs.variant import state_key, steps_in_words

if TYPE_CHECKING:
    import optuna

Past = list[tuple[Mapping[str, str], float]]
"""Earlier results of a tuner: (choices, value) of each."""
TUNE = "tune"
"""Name of the move that sets knobs."""
_BY_TPE = 40
_AT_RANDOM = 20  # first results, before TPE has something to model
_KEPT = 0.8  # of the best setting's choices
_DRAWS = 16  # draws in a row that are known or impossible, before all neighbours are tried in order
_YOUNG, _TOURNAMENT = 16, 4  # results that a parent is drawn from, and how many are
_BAD = -3.0  # ln of the speedup that TPE takes a failure for


def tpe(around: SelectionContext) -> SearchChoice | None:
    """Tune all steps as one space of choices, then try the likeliest move."""
    ranked = [around.variants[node.key] for node in around.graph.ranked()]
    for space in around.proposer.spaces(ranked):
        if (found := _tune(around, space)) is not None:
            return found
    return best_first(around)


def _tune(around: SelectionContext, space: KnobSpace) -> SearchChoice | None:
    """Return a proposal with the tuner's next setting of all knobs; None if all are known."""
    base = state_key(space.base)
    base = around.graph.twins.get(base, base)
    if not space.knobs or base not in around.graph.nodes:
        return None
    charged = [tried for tried in around.history if tried.charged]
    results = {tried.state or tried.key: tried.value for tried in charged}
    failures = {
        tried.state or tried.key
        for tried in charged
        if tried.value is None and tried.status != "correct"
    }
    known, past = _Settings(around, space, frozenset(failures)), Past()
    for key, value in ({around.graph.start: 0.0} | results).items():
        values = known.values(key)
        if values is not None:
            past.append((values, _BAD if value is None else value))
    typical = statistics.median(value for _, value in past) if past else 0.0
    for key in around.graph.in_flight:  # as if it had a common value, so that others are drawn
        values = known.values(key)
        if values is not None:
            past.append((values, typical))
    if len({tuple(values.values()) for values, _ in past}) >= math.prod(
        len(knob.choices) for knob in space.knobs
    ):
        return None
    made = around.graph.action(base, TUNE).attempts
    found, scores = None, list[tuple[str, float]]()
    for knob in space.knobs:
        for choice in knob.choices[1:] if knob.tried_first and found is None else ():
            found = known.new({each.name: ABSENT for each in space.knobs} | {knob.name: choice})
            if found is not None:
                scores.append(("tried alone", 1.0))
                break
    if found is None and len(past) < _BY_TPE:
        found = _drawn(known, past)
        scores.append(("drawn at random" if len(past) < _AT_RANDOM else "drawn by TPE", 1.0))
    if found is None:
        found, scores = _neighbour(known, past)
    return None if found is None else SearchChoice(base, TUNE, made, found, (), tuple(scores))


@dataclass(frozen=True)
class _Settings:
    """Settings of one space of knobs, with a cache of the settings that are known."""

    around: SelectionContext
    space: KnobSpace
    failures: frozenset[str]
    """Keys of the states that failed; a correct kernel that could not be timed did not."""

    @property
    def name(self) -> str:
        """Name of the space: the steps that led to its base."""
        return steps_in_words(self.space.base.applied)

    @functools.cached_property
    def failed(self) -> frozenset[tuple[str, str]]:
        """(knob's name, choice) of each whole-kernel move that failed when it was tried alone."""
        first = {knob.name for knob in self.space.knobs if knob.tried_first}
        failed = set[tuple[str, str]]()
        for key in self.failures:
            values = self.values(key) or {}
            made = [(name, choice) for name, choice in values.items() if choice != ABSENT]
            failed.update(made if len(made) == 1 and made[0][0] in first else ())
        return frozenset(failed)

    def tuned(self, values: Mapping[str, str]) -> Proposal | None:
        """Return the proposal with given choices; None if it cannot be made or is known to fail."""
        if not self.failed.isdisjoint(values.items()):
            return None
        return self.around.proposer.tuned(self.space, values)

    def values(self, key: str) -> Mapping[str, str] | None:
        """Return a state's choices by knob; None outside of the space."""
        place, memo = ("values", key, self.name), self.around.memo
        if place not in memo:
            variant = self.around.variants[key]
            memo[place] = self.around.proposer.values(self.space, variant)
        found: Mapping[str, str] | None = memo[place]
        return found

    def new(self, values: Mapping[str, str]) -> Proposal | None:
        """Return the proposal with given choices, unless its state is known already."""
        place = ("old", self.name, *(values[knob.name] for knob in self.space.knobs))
        if place in self.around.memo:
            return None
        proposal = self.tuned(values)
        if proposal is None or self.around.graph.knows(state_key(proposal.variant)):
            self.around.memo[place] = True
            return None
        return proposal

    def neighbour(self, values: Mapping[str, str]) -> Proposal | None:
        """Return the first proposal of an unknown state that differs in one choice."""
        place = ("alone", self.name, *(values[knob.name] for knob in self.space.knobs))
        if place in self.around.memo:
            return None
        for knob in self.space.knobs:
            for choice in knob.choices:
                if choice != values[knob.name]:
                    found = self.new({**values, knob.name: choice})
                    if found is not None:
                        return found
        self.around.memo[place] = True
        return None


def _drawn(known: _Settings, past: Past) -> Proposal | None:
    """Return a new setting drawn by Optuna's TPE; None if it draws none."""
    around, space = known.around, known.space
    impossible: Past = []
    for draw in range(_DRAWS):
        numbers = stream(around.seed, TUNE, len(past), draw)
        if len(past) < _AT_RANDOM:
            values = {knob.name: numbers.choice(knob.choices) for knob in space.knobs}
            if any(knob.tried_first for knob in space.knobs):
                best = max(past, key=lambda each: each[1])[0]
                values |= {name: best[name] for name in _kept(around, space.knobs, numbers)}
        else:
            values = _asked(space.knobs, [*past, *impossible], numbers.getrandbits(31))
        proposal = known.tuned(values)
        if proposal is None:
            impossible.append((values, _BAD))
        elif not around.graph.knows(state_key(proposal.variant)):
            return proposal
    return None


def _kept(around: SelectionContext, knobs: Sequence[Knob], numbers: random.Random) -> Iterator[str]:
    """Yield the names of knobs that a random setting takes from the best one; most of them do.

    Knobs whose moves relieve what limits the best state are changed more often.
    """
    shares = around.shares(around.graph.ranked()[0].key)
    reliefs = [relief(knob.name.partition("/")[0], shares) for knob in knobs]
    usual = statistics.fmean(reliefs)
    for knob, each in zip(knobs, reliefs, strict=True):
        if numbers.random() >= (1.0 - _KEPT) * min(2.0, max(0.5, each / usual)):
            yield knob.name


def _asked(knobs: Sequence[Knob], past: Past, number: int) -> dict[str, str]:
    """Return the choices that Optuna's TPE suggests next.

    Args:
        knobs: The space.
        past: (choices, value) of each result; larger values are better.
        number: Seed of the sampler.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=number, multivariate=True, n_startup_trials=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {knob.name: _distribution(knob) for knob in knobs}
    for values, value in past:
        places = {knob.name: knob.choices.index(values[knob.name]) for knob in knobs}
        study.add_trial(optuna.trial.create_trial(params=places, distributions=space, value=value))
    asked = study.ask(fixed_distributions=space).params
    return {knob.name: knob.choices[asked[knob.name]] for knob in knobs}


@functools.lru_cache(maxsize=1024)
def _distribution(knob: Knob) -> optuna.distributions.BaseDistribution:
    """Return Optuna's distribution of a knob's choices, ordered if all are numbers."""
    import optuna

    count = len(knob.choices)
    if all(_is_number(choice) for choice in knob.choices):
        return optuna.distributions.IntDistribution(0, count - 1)
    return optuna.distributions.CategoricalDistribution(tuple(range(count)))


def _neighbour(known: _Settings, past: Past) -> tuple[Proposal | None, list[tuple[str, float]]]:
    """Return a good result's setting with one knob changed, and the results that were compared.

    In turns, the result is drawn from the best results, each half as likely as the one before it,
    or is the best of four that are drawn from the sixteen latest. So a local optimum is left before
    all of its neighbours were judged. Once such draws give known settings only, all neighbours
    follow in order.
    """
    around, space = known.around, known.space
    best_first_past = sorted(past, key=lambda each: -each[1])
    ranked = [values for values, _ in best_first_past]
    compared = [(_told(each[0]), each[1]) for each in best_first_past[:_TOURNAMENT]]
    for draw in range(_DRAWS):
        numbers = stream(around.seed, "neighbour", len(past), draw)
        if len(past) % 2:
            base = ranked[min(int(-math.log2(1.0 - numbers.random())), len(ranked) - 1)]
        else:
            young = past[-_YOUNG:]
            drawn = numbers.sample(young, min(_TOURNAMENT, len(young)))
            base = max(drawn, key=lambda each: each[1])[0]
            compared = [(_told(each[0]), each[1]) for each in drawn]
        knob = numbers.choice(space.knobs)
        others = [choice for choice in knob.choices if choice != base[knob.name]]
        found = known.new({**base, knob.name: numbers.choice(others)})
        if found is not None:
            return found, compared
    for values in ranked:
        found = known.neighbour(values)
        if found is not None:
            return found, compared
    return None, []


def _told(values: Mapping[str, str]) -> str:
    """Return a setting of knobs as a text for a log."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if value != ABSENT)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
