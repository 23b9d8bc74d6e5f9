"""`MoveExperience`: gains of moves, which change priors and prune weak proposals.

``global_tactic_graph.json`` (version 3) holds ``entries`` by kernel family and kind of device. Each
has its ``family``, ``device_kind``, the number of ``searches``, and ``edges``: ``attempts``,
``successes`` and ``gain`` by the strongest bottleneck of a state (see `kernelgym.counters`; empty
where it is not known), by the last move of that state (``start`` if it has none) and by the move
that was tried on it. They decay, and so are no whole numbers.

Contract:

- a kernel that was judged is an attempt; it is a success if it is 2 % faster than the state that
  it was made from, and its gain is then the natural logarithm of that speedup. A wrong one is an
  attempt;
- edges of another family or kind of device are neither read nor changed; all searches share them,
  whatever their ruleset and machine: shares of successes carry over where times do not;
- a problem that its suite holds out for evaluations adds nothing to the file;
- each result counts 5 % less with every later result of the same edge, and the results in the file
  count a fifth less with every search that is added;
- a prior is multiplied by a factor between 0.1 and 1.1 and never becomes zero; without results,
  priors are the proposer's own;
- the file is read, extended and replaced atomically, under a lock; a file of an earlier version is
  begun anew. A search uses the results that the file held when it began; they are part of its log,
  so that a resumed search has the same priors.

Everything but `read_tactics` and `add_tactics` is pure.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.file_lock import locked
from kernelgym.whole_file import write_whole
from kernelgym_train.mcgs.variant import Variant

START = "start"
NAME = "global_tactic_graph.json"
"""Name of the file in which searches share the gains of moves."""
_COUNTS = ("attempts", "successes", "gain")
VERSION = 3
_RECENT, _KEPT = 0.95, 0.8
_LEAST = 0.1
_STRENGTH = 8.0  # attempts; without results a rate counts as this many
_HOPED, _HOPES = 0.1, 4.0  # ln of the speedup that an untried move is expected to gain; attempts
_MOST, _MOST_GAIN = 1e9, 200.0  # attempts; ln of a speedup

Edges = dict[tuple[str, str, str], list[float]]
"""Map from (bottleneck, last move, move) to [attempts, successes, sum of gains]."""
_NONE = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class TacticsKey:
    """Family of kernels and kind of device: searches with the same key share the gains of moves."""

    family: str
    """Family of kernels, such as ``product``; see `kernelgym_train.mcgs.cpp.cost.family_of`."""
    device_kind: str
    """Kind of device, such as ``cpu``."""

    def __str__(self) -> str:
        return f"{self.family} on {self.device_kind}"


@dataclass(frozen=True, slots=True)
class _Rates:
    """Success rates of moves, computed from counts.

    Each level is shrunk towards the one above it: a move, a move where a bottleneck is strongest,
    and that after a last move.
    """

    edges: Edges
    moves: Mapping[tuple[str, str], list[float]]
    """Counts by (bottleneck, move), and by ("", move) for all bottlenecks together."""

    def _levels(self, limit: str, after: str, move: str) -> tuple[Sequence[float], ...]:
        known = (self.moves.get((limit, move), _NONE),) if limit else ()
        whole, edge = self.moves.get(("", move), _NONE), self.edges.get((limit, after, move), _NONE)
        return whole, *known, edge

    def of(self, limit: str, after: str, move: str) -> float:
        rate = 0.5
        for attempts, successes, _ in self._levels(limit, after, move):
            rate = (successes + _STRENGTH * rate) / (attempts + _STRENGTH)
        return rate

    def gain(self, limit: str, after: str, move: str) -> float:
        mean = _HOPED
        for attempts, _, gain in self._levels(limit, after, move):
            mean = (gain + _HOPES * mean) / (attempts + _HOPES)
        return mean


class MoveExperience:
    """Results of moves, in this search and in earlier ones."""

    def __init__(self) -> None:
        self._before: Edges = {}
        self._run: Edges = {}
        self._rates: _Rates | None = None
        self.fresh: Edges = {}
        """Results of this search that are not in the file yet."""

    def begin(self, plain: Mapping[str, Any]) -> None:
        """Set the results of earlier searches, which the shared file held when the search began."""
        self._before, self._rates = _edges(plain), None

    def add(self, after: str, move: str, gain: float, limit: str = "") -> None:
        """Add the result of one move to the counts.

        Args:
            after: Last move of the state that was changed.
            move: The move that was tried there.
            gain: Natural logarithm of the speedup that the move gave; 0 if it is not a success.
            limit: Strongest bottleneck of that state; empty if it is not known.
        """
        for edges in (self._run, self.fresh):
            new = (1.0, float(gain > 0.0), gain)
            past = edges.get((limit, after, move), _NONE)
            edges[limit, after, move] = [
                _RECENT * old + more for old, more in zip(past, new, strict=True)
            ]
        self._rates = None

    def take_back(self, after: str, move: str, gain: float, limit: str) -> None:
        """Count an added result as a failure, since the state was refused later.

        Args:
            after: As it was added.
            move: As it was added.
            gain: As it was added.
            limit: As it was added.
        """
        for edges in (self._run, self.fresh):
            if (past := edges.get((limit, after, move))) is not None:
                tries, successes, gains = past
                left = max(0.0, successes - (gain > 0.0)), max(0.0, gains - gain)
                edges[limit, after, move] = [tries, *left]
        self._rates = None

    def written(self) -> None:
        """Record that the file holds all results of this search."""
        self.fresh = {}

    def weighed(
        self, after: str, priors: tuple[tuple[str, float], ...], limit: str = ""
    ) -> tuple[tuple[str, float], ...]:
        """Return priors multiplied by the success rates of their moves, adding up to 1.

        Args:
            after: Last move of the state.
            priors: (move, prior), as a proposer returns them.
            limit: Strongest bottleneck of the state; empty if it is not known.
        """
        if not priors or not (self._before or self._run):
            return priors
        rates = self._known()
        found = [(move, share * (_LEAST + rates.of(limit, after, move))) for move, share in priors]
        total = sum(share for _, share in found)
        return tuple((move, share / total) for move, share in found)

    def predicted_gain(self, after: str, steps: Iterable[str], limit: str = "") -> float:
        """Return the share by which a proposal is expected to be faster.

        It is the mean gain of the likeliest of its moves. A move without results is expected to
        gain 10 %; this expectation counts as four results.

        Args:
            after: Last move of the state that is changed.
            steps: Moves that the proposal makes at once.
            limit: Strongest bottleneck of that state; empty if it is not known.
        """
        rates = self._known()
        return math.expm1(max((rates.gain(limit, after, move) for move in steps), default=_HOPED))

    def _known(self) -> _Rates:
        if self._rates is None:
            both = _sum(self._before, self._run)
            moves: dict[tuple[str, str], list[float]] = {}
            for (limit, _, move), counts in both.items():
                for key in {(limit, move), ("", move)}:
                    moves[key] = _added(moves.get(key, _NONE), counts)
            self._rates = _Rates(both, moves)
        return self._rates

    def source(self, move: str) -> tuple[str, ...]:
        """Return the origin of results that changed a prior: ``run``, ``file``, both or none."""
        found = {"run": self._run, "file": self._before}
        return tuple(name for name, edges in found.items() if any(key[2] == move for key in edges))


def last_move(variant: Variant) -> str:
    """Return the move of a variant's last step; ``start`` if it has no step."""
    return variant.applied[-1].move if variant.applied else START


def tactics_path(outdir: Path) -> Path:
    """Return the path of the shared file with the gains of moves, in a folder of results."""
    return outdir / NAME


def read_tactics(path: Path, key: TacticsKey | None = None) -> dict[str, Any]:
    """Return the shared file's results for a key; empty if there are none.

    Args:
        path: The file.
        key: Family and kind of device; None to check the file alone.

    Raises:
        UsageError: If the file cannot be read.
    """
    entry = _read(path)["entries"].get(str(key), {})
    return _plain(_edges(entry.get("edges", {})))


def add_tactics(path: Path, key: TacticsKey, fresh: Edges) -> None:
    """Add a search's results to the file.

    Args:
        path: The file.
        key: Family and kind of device.
        fresh: Results that are not in the file yet.

    Raises:
        UsageError: If the file is damaged; it stays as it is.
    """
    if not fresh:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock"), fcntl.LOCK_EX):
        whole = _read(path)
        entry = whole["entries"].get(str(key), {})
        past = _edges(entry.get("edges", {})).items()
        kept = {edge: [_KEPT * count for count in counts] for edge, counts in past}
        whole["entries"][str(key)] = {
            "family": key.family,
            "device_kind": key.device_kind,
            "searches": entry.get("searches", 0) + 1,
            "edges": _plain(_sum(kept, fresh)),
        }
        write_whole(path, json.dumps(whole, indent=2, allow_nan=False) + "\n")


def _sum(one: Edges, other: Edges) -> Edges:
    found = dict(one)
    for key, counts in other.items():
        found[key] = _added(found.get(key, _NONE), counts)
    return found


def _added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"version": VERSION, "entries": {}}
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["version"] < VERSION:  # of an earlier package; the next search replaces it
            return {"version": VERSION, "entries": {}}
        if whole["version"] == VERSION:  # entries of another version may have any form
            for entry in whole["entries"].values():
                _edges(entry["edges"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        remedy = "name a file" if path.is_dir() else "remove it to start over"
        raise UsageError(f"cannot read the tactics in {path} ({error!r}); {remedy}") from None
    if whole["version"] != VERSION:
        raise UsageError(
            f"{path} is of version {whole['version']}, and this kernelgym reads version {VERSION}; "
            "remove it to start over"
        )
    return dict(whole)


def _edges(plain: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> Edges:
    return {
        (limit, after, move): _counts(counts)
        for limit, states in plain.items()
        for after, moves in states.items()
        for move, counts in moves.items()
    }


def _counts(plain: Mapping[str, float]) -> list[float]:
    """Return one edge's counts.

    Raises:
        ValueError: If no searches give them; exp() of such a mean gain would overflow.
    """
    attempts, successes, gain = found = [float(plain[name]) for name in _COUNTS]
    if not (0 <= successes <= attempts + 1 <= _MOST and 0 <= gain <= _MOST_GAIN * (attempts + 1)):
        raise ValueError(f"the counts {found} are out of bounds")
    return found


def _plain(edges: Edges) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (limit, after, move), counts in sorted(edges.items()):
        rounded = {name: round(count, 6) for name, count in zip(_COUNTS, counts, strict=True)}
        found.setdefault(limit, {}).setdefault(after, {})[move] = rounded
    return found
