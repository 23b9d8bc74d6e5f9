"""`MoveExperience`: how often moves gained, as weights of priors.

``outdir/global_tactic_graph.json`` (version 1) is a graph of moves: ``contexts`` by key, each with
its ``context`` (what times depend on, the task apart), the number of ``searches``, and ``edges``:
by the last move of a state (``start`` if it has none) and by the move that was tried there,
``attempts`` and ``successes``. They are sums with decay, so no whole numbers.

Contract:

- a kernel that was judged is an attempt; it is a success if it is 2 % faster than the state that
  it was made from. A wrong one is an attempt;
- edges of another context (ruleset, machine, compiler, version, approximate moves or not) are
  neither read nor changed. Kernels of one context share theirs: that is what the file is for;
- each result counts 5 % less with every later one of the same edge, and what the file holds counts
  a fifth less with every search that is added;
- a prior is multiplied by between 0.1 and 1.1 and never becomes zero; without results all are as
  the proposer said;
- the file is replaced atomically, under a lock, by what it holds at that time and what this search
  found since it was last added. A search takes in what the file held when it began: that is an
  event, so that a search that goes on has the same priors.

Everything but `read_tactics` and `add_tactics` is pure.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym_train.mcgs.variant import Variant, context_key

__all__ = ["START", "MoveExperience", "add_tactics", "last_move", "read_tactics", "tactics_path"]

START = "start"
VERSION = 1
_RECENT, _KEPT = 0.95, 0.8
_LEAST = 0.1
_STRENGTH = 8.0  # attempts that an estimate stands for: few results change little

Edges = dict[tuple[str, str], list[float]]
"""[attempts, successes] by (last move, move)."""


@dataclass(frozen=True, slots=True)
class _Rates:
    """Success rates, from counts."""

    edges: Mapping[tuple[str, str], list[float]]
    moves: Mapping[str, list[float]]

    def of(self, after: str, move: str) -> float:
        attempts, successes = self.moves.get(move, (0.0, 0.0))
        rate = (successes + _STRENGTH / 2) / (attempts + _STRENGTH)
        attempts, successes = self.edges.get((after, move), (0.0, 0.0))
        return (successes + _STRENGTH * rate) / (attempts + _STRENGTH)


class MoveExperience:
    """What moves came to."""

    def __init__(self) -> None:
        self._before: Edges = {}
        self._run: Edges = {}
        self._rates: _Rates | None = None
        self.fresh: Edges = {}
        """Results of this search that were not added to the file."""

    def begin(self, plain: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """Take in the edges that the file held when the search began."""
        self._before, self._rates = _edges(plain), None

    def add(self, after: str, move: str, gained: bool) -> None:
        """Take in one result.

        Args:
            after: The last move of the state that it was made from.
            move: The move that was tried there.
            gained: Whether what came of it is faster.
        """
        for edges in (self._run, self.fresh):
            attempts, successes = edges.get((after, move), (0.0, 0.0))
            edges[after, move] = [_RECENT * attempts + 1.0, _RECENT * successes + gained]
        self._rates = None

    def written(self) -> None:
        """Forget which results were not added to the file: they are now."""
        self.fresh = {}

    def weighed(
        self, after: str, priors: tuple[tuple[str, float], ...]
    ) -> tuple[tuple[str, float], ...]:
        """Return priors by what their moves came to.

        Args:
            after: The last move of the state.
            priors: (move, share), as a proposer returns them.
        """
        if not priors or not (self._before or self._run):
            return priors
        if self._rates is None:
            self._rates = self._added_up()
        rates = self._rates
        found = [(move, share * (_LEAST + rates.of(after, move))) for move, share in priors]
        total = sum(share for _, share in found)
        return tuple((move, share / total) for move, share in found)

    def _added_up(self) -> _Rates:
        both: Edges = {}
        for edges in (self._before, self._run):
            for key, (attempts, successes) in edges.items():
                there = both.get(key, [0.0, 0.0])
                both[key] = [there[0] + attempts, there[1] + successes]
        moves: dict[str, list[float]] = {}
        for (_, move), (attempts, successes) in both.items():
            there = moves.get(move, [0.0, 0.0])
            moves[move] = [there[0] + attempts, there[1] + successes]
        return _Rates(both, moves)

    def source(self, move: str) -> tuple[str, ...]:
        """Return what a move's prior comes from beside its proposer: ``run``, ``file``."""
        found = {"run": self._run, "file": self._before}
        return tuple(name for name, edges in found.items() if any(key[1] == move for key in edges))


def last_move(variant: Variant) -> str:
    """Return the last of a variant's moves in their order."""
    return variant.applied[-1].move if variant.applied else START


def tactics_path(outdir: Path) -> Path:
    """Return the file of a folder of results."""
    return outdir / "global_tactic_graph.json"


def read_tactics(outdir: Path, context: Mapping[str, str]) -> dict[str, Any]:
    """Return the edges of a context; empty if there are none.

    Args:
        outdir: Folder of results.
        context: What times depend on; its ``task`` is left out.

    Raises:
        UsageError: If the file cannot be read.
    """
    entry = _read(tactics_path(outdir))["contexts"].get(_key(context), {})
    return _plain(_edges(entry.get("edges", {})))


def add_tactics(outdir: Path, context: Mapping[str, str], fresh: Edges) -> None:
    """Add a search's results to the file.

    Args:
        outdir: Folder of results.
        context: What times depend on; its ``task`` is left out.
        fresh: Results that the file does not hold.

    Raises:
        UsageError: If the file is damaged; it stays as it is.
    """
    if not fresh:
        return
    path = tactics_path(outdir)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_name(f".{path.name}.lock")):
        whole = _read(path)
        entry = whole["contexts"].get(_key(context), {})
        edges = {
            key: [_KEPT * attempts, _KEPT * successes]
            for key, (attempts, successes) in _edges(entry.get("edges", {})).items()
        }
        for key, (attempts, successes) in fresh.items():
            there = edges.get(key, [0.0, 0.0])
            edges[key] = [there[0] + attempts, there[1] + successes]
        whole["contexts"][_key(context)] = {
            "context": {name: value for name, value in context.items() if name != "task"},
            "searches": entry.get("searches", 0) + 1,
            "edges": _plain(edges),
        }
        beside = path.with_name(f".{path.name}")
        beside.write_text(json.dumps(whole, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(beside, path)


def _key(context: Mapping[str, str]) -> str:
    return context_key((name, value) for name, value in context.items() if name != "task")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"version": VERSION, "contexts": {}}
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["version"] == VERSION:  # another one's contexts may have any form
            for entry in whole["contexts"].values():
                _edges(entry["edges"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"cannot read {path} ({error!r}); remove it to begin anew") from None
    if whole["version"] != VERSION:
        raise UsageError(f"{path} is of version {whole['version']}, and {VERSION} is known")
    return dict(whole)


def _edges(plain: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Edges:
    return {
        (after, move): [float(counts["attempts"]), float(counts["successes"])]
        for after, moves in plain.items()
        for move, counts in moves.items()
    }


def _plain(edges: Edges) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (after, move), (attempts, successes) in sorted(edges.items()):
        counts = {"attempts": round(attempts, 6), "successes": round(successes, 6)}
        found.setdefault(after, {})[move] = counts
    return found
