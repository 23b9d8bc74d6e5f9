"""Algorithms over tables: what they share, and what each is known for."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.search.offline import anywhere, play, play_from
from benchmarks.search.table import Table, TableProposer
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.graph import SearchGraph
from kernelgym_train.mcgs.knobs import ABSENT, KnobSpace
from kernelgym_train.mcgs.selection import (
    Algorithm,
    SearchChoice,
    SelectionContext,
    mcgs,
    with_noise,
)
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.tuning import tpe
from kernelgym_train.mcgs.variant import state_key

QUICK = [name for name in ALGORITHMS if name != "tpe"]
TRIED = ["best_first", "mcgs", "tpe"]


def table(sizes: tuple[int, ...] = (3, 3, 3), fails: int = 0) -> Table:
    """Return a space whose columns multiply; each has its best choice in the middle."""
    columns = {f"c{at}": tuple(map(str, range(size))) for at, size in enumerate(sizes)}
    times: dict[tuple[str, ...], float | None] = {}
    for number, config in enumerate(itertools.product(*columns.values())):
        away = sum(abs(int(c) - size // 2) for c, size in zip(config, sizes, strict=True))
        times[config] = None if fails and number % fails == 1 else math.exp(0.3 * away)
    return Table("t", columns, times)


class Known:
    """What a search over a table has seen."""

    def __init__(self, space: Table, start: tuple[str, ...], seed: int = 0) -> None:
        self.proposer = TableProposer(space, start)
        first = self.proposer.variant(start)
        self.graph = SearchGraph(state_key(first))
        self.variants = {self.graph.start: first}
        self.history: list[SearchTrial] = []
        self.around = SelectionContext(self.graph, self.variants, self.proposer, seed, self.history)

    def add(self, move: str, attempt: int, value: float | None, node: str = "") -> str:
        """Judge a proposal; returns its key."""
        node = node or self.graph.start
        made = self.proposer.propose(self.variants[node], move, attempt)
        assert made is not None
        key = state_key(made.variant)
        self.variants[key] = made.variant
        self.graph.dispatch([], node, move, attempt, key)
        self.history.append(SearchTrial(key, node, move, value, charged=True))
        self.graph.settle(key, value)
        return key


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_small_space_is_searched_once_and_whole(algo: str) -> None:
    space = table((3, 3, 2), fails=5)
    found = play(ALGORITHMS[algo], space, seed=3, budget=40)
    assert len(set(found.configs)) == len(found.configs)
    assert found.shares[-1] == 1.0 and len(found.configs) >= 12


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_same_seed_gives_the_same_search(algo: str) -> None:
    space = table((3, 4, 3, 2), fails=7)
    one = play(ALGORITHMS[algo], space, seed=1, budget=18)
    assert play(ALGORITHMS[algo], space, seed=1, budget=18) == one
    assert play(ALGORITHMS[algo], space, seed=2, budget=18) != one


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_choice_tells_what_it_compared(algo: str) -> None:
    known = Known(table((5, 5, 5)), ("0", "0", "0"))
    for number in range(60):
        choice = ALGORITHMS[algo](known.around)
        assert choice is not None
        assert choice.scores and len(dict(choice.scores)) == len(choice.scores)
        assert all(math.isfinite(score) for _, score in choice.scores)
        key = state_key(choice.proposal.variant)
        if known.graph.knows(key):
            known.graph.repeat(choice.node, choice.move, choice.attempt, key)
            continue
        known.variants[key] = choice.proposal.variant
        known.graph.dispatch(choice.links, choice.node, choice.move, choice.attempt, key)
        value = None if number % 5 == 3 else math.sin(number)
        known.history.append(SearchTrial(key, choice.node, choice.move, value, charged=True))
        known.graph.settle(key, value)


def test_deep_graph_is_walked() -> None:
    """A chain that recursion by a few calls a state cannot walk, spent but for its last state."""
    depth = sys.getrecursionlimit() // 3
    known = Known(table((3, 3)), ("0", "0"))
    graph, names = known.graph, ("c0", "c1")
    node = graph.start
    for number in range(depth):
        key = f"state {number}"
        known.variants[key] = known.variants[graph.start]
        for move, attempt in itertools.product(names, range(2)):
            graph.dispatch([], node, move, attempt, f"{key} {move} {attempt}")
            graph.settle(f"{key} {move} {attempt}", None)
        graph.dispatch([], node, "c1", 2, key)
        graph.settle(key, 0.001 * number)
        node = key
    choice = mcgs(known.around)
    assert choice is not None and choice.node == node and len(choice.links) == depth


@pytest.mark.parametrize(("seed", "fails"), [(1, 4), pytest.param(0, 0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_choices_do_not_depend_on_what_was_kept(algo: str, seed: int, fails: int) -> None:
    """A resumed search has kept nothing, and goes on as the unbroken one."""
    algorithm = ALGORITHMS[algo]

    def forgetful(around: SelectionContext) -> SearchChoice | None:
        return algorithm(dataclasses.replace(around, memo={}))

    space = table((3, 4, 3), fails=fails)
    whole = play(algorithm, space, seed=seed, budget=36)
    assert play(forgetful, space, seed=seed, budget=36) == whole


def test_root_noise_changes_the_start_alone() -> None:
    def firsts(noise: float) -> set[str]:
        found = set()
        for seed in range(20):
            known = Known(table((9, 9, 9)), ("0",) * 3, seed)
            choice = mcgs(dataclasses.replace(known.around, root_noise=noise))
            assert choice is not None
            found.add(choice.move)
        return found

    assert len(firsts(0.0)) == 1 and len(firsts(1.0)) == 3
    known = Known(table((3, 3, 3)), ("0",) * 3)
    for move, attempt in itertools.product(("c0", "c1", "c2"), range(2)):
        known.add(move, attempt, 5.0 if (move, attempt) == ("c0", 0) else -5.0)
    plain, noisy = (
        mcgs(dataclasses.replace(known.around, root_noise=noise)) for noise in (0.0, 0.5)
    )
    assert plain is not None and plain.node != known.graph.start and noisy == plain


@given(st.integers(0, 99), st.integers(1, 9), st.floats(0.0, 1.0))
@settings(deadline=None)
def test_priors_with_noise_are_shares(seed: int, moves: int, noise: float) -> None:
    known = Known(table((3,) * moves), ("0",) * moves, seed)
    around = dataclasses.replace(known.around, root_noise=noise)
    plain = around.moves(known.graph.nodes[known.graph.start])
    mixed = with_noise(around, plain)
    assert [move for move, _ in mixed] == [move for move, _ in plain]
    assert sum(prior for _, prior in mixed) == pytest.approx(1.0)
    for (_, before), (_, after) in zip(plain, mixed, strict=True):
        assert (1.0 - noise) * before - 1e-12 <= after <= 1.0 + 1e-12
    assert mixed == with_noise(around, plain), "one draw a search"


@given(st.integers(0, 1000), st.sampled_from(QUICK), st.sampled_from([0, 3, 4]))
@settings(max_examples=30, deadline=None)
def test_incumbent_without_noise_never_gets_worse(seed: int, algo: str, fails: int) -> None:
    shares = play(ALGORITHMS[algo], table((3, 3, 3, 2), fails=fails), seed=seed, budget=25).shares
    assert all(a <= b for a, b in itertools.pairwise(shares)) and shares[-1] <= 1.0


@pytest.mark.parametrize(
    "algo",
    [pytest.param(each, marks=[] if each in QUICK else [pytest.mark.slow]) for each in TRIED],
)
def test_search_beats_chance_on_a_separable_space(algo: str) -> None:
    space = table((5, 5, 5, 4))
    seeds = range(3)

    def area(algorithm: Algorithm) -> float:
        return sum(sum(play(algorithm, space, seed=s, budget=40).shares) for s in seeds)

    assert area(ALGORITHMS[algo]) > area(anywhere)


def test_tuner_takes_neighbours_after_forty() -> None:
    space = table((6, 6, 6))
    found = play(tpe, space, seed=0, budget=80)
    later = found.configs[42:60]
    times = space.times_ms
    for number, config in enumerate(later, 42):
        known = [each for each in found.configs[:number]]
        near = [k for k in known if sum(a != b for a, b in zip(k, config, strict=True)) == 1]
        assert near, f"{config} is no neighbour of a state before it"
    assert min(times[config] or 9.0 for config in found.configs[:60]) == 1.0


class WithWholeKernelMoves(TableProposer):
    """Proposes a table's configurations; the first column stands for moves on a whole kernel."""

    def space(self) -> KnobSpace:
        """Return all columns as knobs, the first of which is tried first."""
        space = super().space()
        first, *others = space.knobs
        return KnobSpace(space.base, (dataclasses.replace(first, tried_first=True), *others))


@settings(max_examples=10)
@given(st.sampled_from(("b", "c")), st.integers(0, 1000))
def test_tuner_combines_nothing_with_a_move_that_fails_alone(failing: str, seed: int) -> None:
    columns = {"move": (ABSENT, "a", "b", "c"), "x": (ABSENT, "1", "2"), "y": (ABSENT, "1", "2")}
    times = {
        config: None if config[0] == failing else 2.0 - (config[0] == "a")
        for config in itertools.product(*columns.values())
    }
    space, start = Table("moves", columns, times), (ABSENT,) * 3
    proposer = WithWholeKernelMoves(space, start)
    found = play_from(
        *(tpe, space, proposer, proposer.variant(start), proposer.config), seed=seed, budget=24
    )
    tried = [config for config in found.configs if config[0] == failing]
    assert tried == [(failing, ABSENT, ABSENT)] and len(found.configs) >= 20
