"""`play`: a search over a table, without a judge and without files.

It uses the graph, the proposer's protocol and the algorithms of the real search. What is left out
is what needs a judge: comparisons, and workers.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.search.table import Config, Table, TableProposer
from kernelgym_train.mcgs.graph import SearchGraph
from kernelgym_train.mcgs.proposing import Proposer
from kernelgym_train.mcgs.selection import Algorithm, SearchChoice, SelectionContext
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.variant import Variant, state_key

__all__ = ["Play", "Seen", "anywhere", "play", "play_from"]

_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Play:
    """Outcome of one search."""

    shares: tuple[float, ...]
    """After each charged evaluation: the optimum's time over that of the incumbent, the state with
    the best measured time. Both are true times."""
    duplicates: int
    configs: tuple[Config, ...]
    """Configurations that were evaluated."""


class Seen:
    """State of a search without a judge: its graph, results and context.

    Args:
        proposer: Proposes variants.
        first: Variant that the search starts from.
        seed: Seed of the algorithm.
    """

    def __init__(self, proposer: Proposer, first: Variant, seed: int) -> None:
        key = state_key(first)
        self.graph, self._variants, self._history = (
            SearchGraph(key),
            {key: first},
            list[SearchTrial](),
        )
        self.around = SelectionContext(self.graph, self._variants, proposer, seed, self._history)

    def repeats(self, choice: SearchChoice) -> bool:
        """Take in a choice whose state is known; False if it is new."""
        key, graph = state_key(choice.proposal.variant), self.graph
        if not graph.knows(key):
            return False
        graph.repeat(choice.node, choice.move, choice.attempt, key)
        if key in graph.nodes:
            value = graph.nodes[key].value
            self._history.append(SearchTrial(key, choice.node, choice.move, value, charged=False))
        return True

    def settle(self, choice: SearchChoice, value: float | None) -> None:
        """Take in a new state's value, or None for a failure."""
        key = state_key(choice.proposal.variant)
        self._variants[key] = choice.proposal.variant
        self.graph.dispatch(choice.links, choice.node, choice.move, choice.attempt, key)
        self._history.append(SearchTrial(key, choice.node, choice.move, value, charged=True))
        self.graph.settle(key, value)


def play(
    algorithm: Algorithm,
    table: Table,
    *,
    seed: int,
    budget: int,
    noise: float = 0.0,
) -> Play:
    """Search a table.

    Args:
        algorithm: Algorithm that chooses the next state.
        table: Table to search; configurations that fail are charged as well.
        seed: Seed of the start, the noise and the algorithm.
        budget: Number of evaluations.
        noise: Standard deviation of ln of a measured time.
    """
    start = table.start(seed)
    proposer = TableProposer(table, start)
    return play_from(
        algorithm,
        table,
        proposer,
        proposer.variant(start),
        proposer.config,
        seed=seed,
        budget=budget,
        noise=noise,
    )


def play_from(
    algorithm: Algorithm,
    table: Table,
    proposer: Proposer,
    first: Variant,
    config_of: Callable[[Variant], Config | None],
    *,
    seed: int,
    budget: int,
    noise: float = 0.0,
) -> Play:
    """Search a table by any proposer.

    Args:
        algorithm: Algorithm that chooses the next state.
        table: Table to search; configurations that fail are charged as well.
        proposer: Proposes variants.
        first: Variant that the search starts from; the table must hold its time.
        config_of: Function that returns a variant's configuration. Variants without one, and those
            that the table does not hold, count as failures.
        seed: Seed of the noise and the algorithm.
        budget: Number of evaluations.
        noise: Standard deviation of ln of a measured time.
    """
    seen = Seen(proposer, first, seed)
    start = config_of(first)
    start_ms = None if start is None else table.times_ms.get(start)
    assert start_ms is not None, "the table holds the start's time"
    optimum, share = table.best_ms, table.best_ms / start_ms
    best, duplicates = 0.0, 0
    shares: list[float] = []
    configs: list[Config] = []
    repeats = 0
    while len(shares) < budget and repeats < _REPEATS:
        choice = algorithm(seen.around)
        if choice is None:
            break
        if seen.repeats(choice):
            duplicates, repeats = duplicates + 1, repeats + 1
            continue
        repeats = 0
        config = config_of(choice.proposal.variant)
        true_ms = measured = None
        if config is not None:
            configs.append(config)
            true_ms = table.times_ms.get(config)
        if config is not None and true_ms is not None:
            measured = math.log(start_ms / true_ms) + _gauss(seed, config, noise)
            if measured > best:
                best, share = measured, optimum / true_ms
        seen.settle(choice, measured)
        shares.append(share)
    shares += [share] * (budget - len(shares))  # the space is exhausted: nothing changes any more
    return Play(tuple(shares), duplicates, tuple(configs))


def anywhere(around: SelectionContext) -> SearchChoice | None:
    """Try any configuration of the table: random search over the whole space."""
    proposer, start = around.proposer, around.graph.start
    assert isinstance(proposer, TableProposer)
    made = around.graph.action(start, "anywhere").attempts
    config = proposer.drawn(around.seed, made)
    if config is None:
        return None
    space = proposer.space()
    names = [knob.name for knob in space.knobs]
    proposal = proposer.tuned(space, {name: config[name] for name in names})
    assert proposal is not None
    return SearchChoice(start, "anywhere", made, proposal)


def _gauss(seed: int, config: Config, noise: float) -> float:
    if not noise:
        return 0.0
    text = repr((seed, "noise", config))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big")).gauss(0.0, noise)
