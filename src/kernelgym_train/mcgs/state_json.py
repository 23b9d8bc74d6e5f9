"""`plain_state`: a search as JSON.

`plain_state` returns the state as JSON (version 1), which ``search_state.json`` holds for readers
and other programs. A search is resumed from its log, never from that file:

- ``evaluations, duplicates, pruned, failures, seconds, stopped, noise, incumbent, start``;
- ``nodes``: by key, in the order in which they were found: ``value`` (ln of the speedup over the
  start), ``risk``, ``applied`` and ``actions``, each with ``attempts, failures, passes`` and the
  ``visits`` of its children;
- ``failed``: keys of states that were judged and are no node, and of nodes that a later full
  verdict refused; ``untimed``: those of them that are correct and could not be timed; ``open``:
  keys without a verdict; ``unproven``: keys of nodes that were judged only in a round with the
  start and have no full verdict yet;
- ``twins``: keys of states whose machine code equals that of another state, with its key;
- ``beaten``: keys of states that lost a duel, or were twice compared without a decision.
"""

from __future__ import annotations

from typing import Any

from kernelgym_train.mcgs.state import SearchState

_VERSION = 1


def plain_state(state: SearchState) -> dict[str, Any]:
    """Return a search's state as JSON data."""
    graph = state.graph
    nodes = {
        node.key: {
            "value": node.value,
            "risk": state.risks[node.key],
            "applied": [
                [step.move, step.target, step.choice] for step in state.variants[node.key].applied
            ],
            "actions": {
                move: {
                    "attempts": action.attempts,
                    "failures": action.failures,
                    "passes": action.passes,
                    "visits": dict(sorted(action.visits.items())),
                }
                for move, action in sorted(node.actions.items())
                if action.attempts
            },
        }
        for node in sorted(graph.nodes.values(), key=lambda node: node.created)
    }
    return {
        "version": _VERSION,
        "start": state.start,
        "incumbent": state.incumbent,
        "evaluations": state.evaluations,
        "duplicates": state.duplicates,
        "pruned": state.pruned,
        "failures": dict(sorted(state.failures.items())),
        "seconds": state.seconds,
        "stopped": state.stopped,
        "noise": state.noise,
        "nodes": nodes,
        "failed": sorted(graph.failed),
        "untimed": sorted(state.untimed),
        "open": list(state.open),
        "twins": dict(sorted(graph.twins.items())),
        "unproven": sorted(state.unproven),
        "beaten": sorted(state.beaten),
    }
