"""Algorithms that tune knobs, alone or beside changes of the structure.

`tune` draws the first 20 results of a space at random, the next 20 by Optuna's TPE, and then
changes one knob of a good result. Settings that were judged already are skipped, and cost nothing.

Contract: as of `kernelgym_train.mcgs.selection`. Optuna draws from a generator that is seeded anew
for each proposal, by the search's seed and the number of proposals before, so that a search that
was cut off goes on as if it had not been.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelgym_train.mcgs.graph import GraphNode
from kernelgym_train.mcgs.knobs import ABSENT, Knob, KnobSpace
from kernelgym_train.mcgs.proposing import Proposal
from kernelgym_train.mcgs.selection import SearchChoice, SelectionContext, best_first, mcgs, stream
from kernelgym_train.mcgs.variant import state_key

if TYPE_CHECKING:
    import optuna

Past = list[tuple[Mapping[str, str], float]]
"""(choices, value) of each result."""
TUNE = "tune"
"""Name of the move that sets knobs."""
_BY_TPE = 40
_AT_RANDOM = 20  # first results of a structure, before TPE has something to model
_DRAWS = 16  # draws in a row that are known or impossible, before all neighbours are tried in order
_YOUNG, _TOURNAMENT = 16, 4  # results that a parent is drawn from, and how many are
_BAD = -3.0  # ln of the speedup that TPE takes a failure for
_IDLE = 8  # results without a gain, after which the best knobs are tried with other structures
_OTHERS = 4  # such structures, the best ones
_REACHED = 0.01  # prior of exploring structures below a tuned state


def tpe(around: SelectionContext) -> SearchChoice | None:
    """Tune all steps as one space of choices, then try the likeliest move."""
    start = around.graph.nodes[around.graph.start]
    return tune(around, start, around.proposer.space(None)) or best_first(around)


def auto(around: SelectionContext) -> SearchChoice | None:
    """Change the structure, or tune the knobs of the best one.

    Both parts count their results since their last gain, and the part with the lower count is next.
    A better structure sets the tuner's count to 0 as well, since its knobs are new.

    A structure is first judged with the knobs of that moment, which may hide that it is the better
    one. So after eight results of the tuner without a gain, the best knobs are tried with the best
    four other structures. Then every other turn of the tuner is for all steps that the start
    allows, structure included, since some gains take two steps at once.
    """
    idle = {"structure": 0, TUNE: 0}
    best = 0.0
    for tried in around.history:
        if not tried.charged:
            continue
        arm = TUNE if tried.move == TUNE else "structure"
        idle[arm] += 1
        if tried.value is not None and tried.value > best:
            best, idle[arm], idle[TUNE] = tried.value, 0, 0
    best_node = around.graph.ranked()[0]
    variant = around.variants[best_node.key]
    whole = around.proposer.space(None)
    space = around.proposer.space(variant)
    stuck = idle[TUNE] >= _IDLE
    tuned = whole if stuck and idle[TUNE] % 2 else space
    arms: list[Callable[[], SearchChoice | None]] = [
        lambda: _structural(around),
        lambda: tune(around, best_node, tuned),
    ]
    if len(space.knobs) == len(whole.knobs):
        arms = arms[1:]  # there is no structure to change
    if idle[TUNE] < idle["structure"]:
        arms.reverse()
    if stuck:
        arms.insert(0, lambda: _moved(around, best_node, space))
        arms.append(lambda: tune(around, best_node, space))
    idle_scores = tuple((f"idle: {arm}", float(results)) for arm, results in idle.items())
    for arm_of in arms:
        if (choice := arm_of()) is not None:
            return dataclasses.replace(choice, scores=(*idle_scores, *choice.scores))
    return best_first(around)


def _structural(around: SelectionContext) -> SearchChoice | None:
    """Return the next new structure by `mcgs`; None if there is none."""
    structures = _Structures.of(around)
    now = structures.known, len(around.graph.nodes)
    if around.memo.get(("no structure",)) == now:
        return None
    choice = mcgs(structures)
    if choice is None:
        around.memo["no structure",] = now
    return choice


def _moved(around: SelectionContext, best: GraphNode, space: KnobSpace) -> SearchChoice | None:
    """Return the best node's knobs with another structure, or None."""
    proposer, variants = around.proposer, around.variants
    knobs = proposer.values(space, variants[best.key]) or {}
    seen = {proposer.structure(variants[best.key])}
    scores: list[tuple[str, float]] = []
    for node in around.graph.ranked():
        variant = variants[node.key]
        structure = proposer.structure(variant)
        if structure in seen:
            continue
        if len(seen) > _OTHERS:
            return None
        seen.add(structure)
        scores.append((node.key, node.value))
        there = proposer.space(variant)
        own = proposer.values(there, variant)
        if own is None:
            continue
        wanted = {**own, **{name: knobs[name] for name in own if name in knobs}}
        found = _Settings.of(around, there).new(wanted)
        if found is not None:
            made = around.graph.action(node.key, TUNE).attempts
            return SearchChoice(node.key, TUNE, made, found, (), tuple(scores))
    return None


@dataclass(frozen=True)
class _Structures(SelectionContext):
    """A selection's context without the proposals whose structure is known."""

    known: frozenset[str] = frozenset()
    """Structures of all nodes and of all states without a result."""

    @classmethod
    def of(cls, around: SelectionContext) -> _Structures:
        """Return a selection's context with the structures that are known."""
        fields = {field.name: getattr(around, field.name) for field in dataclasses.fields(around)}
        known = set()
        for key in (*around.graph.nodes, *around.graph.in_flight, *around.graph.twins):
            place = ("structure", key)
            if place not in around.memo:
                around.memo[place] = around.proposer.structure(around.variants[key])
            known.add(around.memo[place])
        return cls(**fields, known=frozenset(known))

    def moves(self, node: GraphNode) -> tuple[tuple[str, float], ...]:
        """Return moves that fit a node, the tuner's among them."""
        moves = SelectionContext.moves(self, node)
        tuned = node.actions.get(TUNE)
        return (*moves, (TUNE, _REACHED)) if tuned is not None and tuned.visits else moves

    def names(self, node: GraphNode) -> tuple[str, ...]:
        """Return moves that fit a node, the tuner's among them."""
        names = SelectionContext.names(self, node)
        tuned = node.actions.get(TUNE)
        return (*names, TUNE) if tuned is not None and tuned.visits else names

    def untried(self, node: GraphNode, move: str) -> tuple[int, Proposal] | None:
        """Return the first untried proposal of a new structure, or None."""
        if move == TUNE:
            return None
        action = node.actions.get(move)
        tried = set() if action is None else action.tried
        for attempt, structure in enumerate(self._structures(node, move)):
            if structure not in self.known and attempt not in tried:
                found = self.proposer.propose(self.variants[node.key], move, attempt)
                return None if found is None else (attempt, found)
        return None

    def is_spent(self, node: GraphNode) -> bool:
        """Return True if no move leads to a new structure."""
        return all(self.untried(node, move) is None for move in SelectionContext.names(self, node))

    def is_over(self, node: GraphNode) -> bool:
        """Return False: a structure that fails is new again."""
        return False

    def _structures(self, node: GraphNode, move: str) -> list[str]:
        """Return the structures of all proposals of a move."""
        key = ("structures", node.key, move)
        if key not in self.memo:
            variant, found = self.variants[node.key], list[str]()
            while (each := self.proposer.propose(variant, move, len(found))) is not None:
                found.append(self.proposer.structure(each.variant))
            self.memo[key] = found
        structures: list[str] = self.memo[key]
        return structures

    def all_untried(self, node: GraphNode, move: str) -> list[tuple[int, Proposal]]:
        """Return the first untried proposal of each structure that is not known."""
        if move == TUNE:
            return []
        known = set(self.known)
        found: list[tuple[int, Proposal]] = []
        for attempt, proposal in SelectionContext.all_untried(self, node, move):
            structure = self.proposer.structure(proposal.variant)
            if structure not in known:
                known.add(structure)
                found.append((attempt, proposal))
        return found


def tune(around: SelectionContext, node: GraphNode, space: KnobSpace) -> SearchChoice | None:
    """Return the next setting of knobs; None if all are known.

    Args:
        around: Everything that the choice depends on.
        node: Node whose attempts the proposal is counted with.
        space: Space of the settings.
    """
    if not space.knobs:
        return None
    known, past = _Settings.of(around, space), Past()
    charged = [tried for tried in around.history if tried.charged]
    results = {tried.state or tried.key: tried.value for tried in charged}
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
    made = around.graph.action(node.key, TUNE).attempts
    found, scores = None, list[tuple[str, float]]()
    if len(past) < _BY_TPE:
        found = _drawn(known, past)
        scores.append(("drawn at random" if len(past) < _AT_RANDOM else "drawn by TPE", 1.0))
    if found is None:
        found, scores = _neighbour(known, past)
    return None if found is None else SearchChoice(node.key, TUNE, made, found, (), tuple(scores))


@dataclass(frozen=True, slots=True)
class _Settings:
    """A space of settings, with a cache of the settings that are known."""

    around: SelectionContext
    space: KnobSpace
    name: str
    """Key of the space in the cache; it differs for spaces that hold other states or choices."""

    @classmethod
    def of(cls, around: SelectionContext, space: KnobSpace) -> _Settings:
        """Return the settings of a space."""
        names = {knob.name for knob in space.knobs}
        fixed = [step for step in space.base.applied if f"{step.move}/{step.target}" not in names]
        return cls(around, space, repr((around.proposer.structure(space.base), fixed, space.knobs)))

    def values(self, key: str) -> Mapping[str, str] | None:
        """Return a state's choices by knob; None outside of the space."""
        place, memo = ("values", self.name, key), self.around.memo
        if place not in memo:
            variant = self.around.variants[key]
            memo[place] = self.around.proposer.values(self.space, variant)
        found: Mapping[str, str] | None = memo[place]
        return found

    def new(self, values: Mapping[str, str]) -> Proposal | None:
        """Return the proposal with these choices, unless its state is known."""
        place = ("old", self.name, *(values[knob.name] for knob in self.space.knobs))
        if place in self.around.memo:
            return None
        proposal = self.around.proposer.tuned(self.space, values)
        if proposal is None or self.around.graph.knows(state_key(proposal.variant)):
            self.around.memo[place] = True
            return None
        return proposal

    def neighbour(self, values: Mapping[str, str]) -> Proposal | None:
        """Return the first new proposal with one choice changed."""
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
    """Return a setting drawn by TPE; None without a new one."""
    around, space = known.around, known.space
    impossible: Past = []
    for draw in range(_DRAWS):
        numbers = stream(around.seed, TUNE, len(past), draw)
        if len(past) < _AT_RANDOM:
            values = {knob.name: numbers.choice(knob.choices) for knob in space.knobs}
        else:
            values = _asked(space.knobs, [*past, *impossible], numbers.getrandbits(31))
        proposal = around.proposer.tuned(space, values)
        if proposal is None:
            impossible.append((values, _BAD))
        elif not around.graph.knows(state_key(proposal.variant)):
            return proposal
    return None


def _asked(knobs: Sequence[Knob], past: Past, number: int) -> dict[str, str]:
    """Return the choices that Optuna asks for next.

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
    """Return a good result with one knob changed, and the results compared.

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
    """Return a setting as a text for a reader."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if value != ABSENT)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
