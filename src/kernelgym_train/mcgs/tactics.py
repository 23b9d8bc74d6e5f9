"""`MoveExperience`: success rates of moves, by which priors are multiplied.

``outdir/global_tactic_graph.json`` (version 1) holds ``contexts`` by key. Each has its ``context``
(everything that times depend on except the task), the number of ``searches``, and ``edges``:
``attempts`` and ``successes`` by the last move of a state (``start`` if it has none) and by the
move that was tried on that state. They decay, and so are no whole numbers.

Contract:

- a kernel that was judged is an attempt; it is a success if it is 2 % faster than the state that
  it was made from. A wrong one is an attempt;
- edges of another context (ruleset, machine, compiler, version, approximate moves or not) are
  neither read nor changed. All kernels of a context share its edges;
- each result counts 5 % less with every later result of the same edge, and the results in the file
  count a fifth less with every search that is added;
- a prior is multiplied by a factor between 0.1 and 1.1 and never becomes zero; without results,
  priors are the proposer's own;
- the file is read, extended and replaced atomically, under a lock. A search uses the results that
  the file held when it began; they are part of its log, so that a resumed search has the same
  priors.

Everything but `read_tactics` and `add_tactics` is pure.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.file_lock import locked
from kernelgym.whole_file import write_whole
from kernelgym_train.mcgs.variant import Variant, context_key

START = "start"
VERSION = 1
_RECENT, _KEPT = 0.95, 0.8
_LEAST = 0.1
_STRENGTH = 8.0  # attempts; without results a rate counts as this many

Edges = dict[tuple[str, str], list[float]]
"""[attempts, successes] by (last move, move)."""


@dataclass(frozen=True, slots=True)
class _Rates:
    """Success rates of moves, computed from counts."""

    edges: Mapping[tuple[str, str], list[float]]
    moves: Mapping[str, list[float]]

    def of(self, after: str, move: str) -> float:
        attempts, successes = self.moves.get(move, (0.0, 0.0))
        rate = (successes + _STRENGTH / 2) / (attempts + _STRENGTH)
        attempts, successes = self.edges.get((after, move), (0.0, 0.0))
        return (successes + _STRENGTH * rate) / (attempts + _STRENGTH)


class MoveExperience:
    """Results of moves, in this search and in earlier ones."""

    def __init__(self) -> None:
        self._before: Edges = {}
        self._run: Edges = {}
        self._rates: _Rates | None = None
        self.fresh: Edges = {}
        """Results of this search that are not in the file yet."""

    def begin(self, plain: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """Set the results that the file held when the search began."""
        self._before, self._rates = _edges(plain), None

    def add(self, after: str, move: str, gained: bool) -> None:
        """Add one result.

        Args:
            after: Last move of the state that was changed.
            move: The move that was tried there.
            gained: Whether the changed state is faster.
        """
        for edges in (self._run, self.fresh):
            attempts, successes = edges.get((after, move), (0.0, 0.0))
            edges[after, move] = [_RECENT * attempts + 1.0, _RECENT * successes + gained]
        self._rates = None

    def written(self) -> None:
        """Record that all results of this search are in the file."""
        self.fresh = {}

    def weighed(
        self, after: str, priors: tuple[tuple[str, float], ...]
    ) -> tuple[tuple[str, float], ...]:
        """Return priors multiplied by the success rates of their moves, adding up to 1.

        Args:
            after: Last move of the state.
            priors: (move, prior), as a proposer returns them.
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
        """Return which results changed a move's prior: ``run``, ``file``, both or none."""
        found = {"run": self._run, "file": self._before}
        return tuple(name for name, edges in found.items() if any(key[1] == move for key in edges))


def last_move(variant: Variant) -> str:
    """Return the move of a variant's last step; ``start`` if it has no step."""
    return variant.applied[-1].move if variant.applied else START


def tactics_path(outdir: Path) -> Path:
    """Return the path of the file in a folder of results."""
    return outdir / "global_tactic_graph.json"


def read_tactics(outdir: Path, context: Mapping[str, str]) -> dict[str, Any]:
    """Return the file's results for a context; empty if there are none.

    Args:
        outdir: Folder of results.
        context: Everything that times depend on; its ``task`` is left out.

    Raises:
        UsageError: If the file cannot be read.
    """
    entry = _read(tactics_path(outdir))["contexts"].get(_key(context), {})
    return _plain(_edges(entry.get("edges", {})))


def add_tactics(outdir: Path, context: Mapping[str, str], fresh: Edges) -> None:
    """Add a search's results to the file.

    Args:
        outdir: Folder of results.
        context: Everything that times depend on; its ``task`` is left out.
        fresh: Results that are not in the file yet.

    Raises:
        UsageError: If the file is damaged; it stays as it is.
    """
    if not fresh:
        return
    path = tactics_path(outdir)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock"), fcntl.LOCK_EX):
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
        write_whole(path, json.dumps(whole, indent=2, allow_nan=False) + "\n")


def _key(context: Mapping[str, str]) -> str:
    return context_key((name, value) for name, value in context.items() if name != "task")


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"version": VERSION, "contexts": {}}
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["version"] == VERSION:  # contexts of another version may have any form
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
