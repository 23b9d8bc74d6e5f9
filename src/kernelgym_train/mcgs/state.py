"""`plain_state`: a search as it stands, as JSON.

What ``search_state.json`` holds (version 1), for readers and other programs; a search goes on from
its log and never from this:

- ``evaluations, duplicates, failures, seconds, stopped, noise, incumbent, start``;
- ``nodes``: by key, in the order in which they were found: ``value`` (ln of the speedup over the
  start's), ``best`` (of the node and all below), ``risk``, ``applied`` and ``actions``, each with
  ``attempts, failures, passes`` and the ``visits`` of its children;
- ``failed``: keys of states that were judged and are no node; ``open``: those without a verdict;
- ``twins``: keys of states whose machine code is another one's, with the other's key;
- ``beaten``: keys that a comparison did not confirm.

Contract: follows from the events alone, so that equal logs give equal states. Pure.
"""

from __future__ import annotations

from typing import Any

from kernelgym_train.mcgs.progress import Progress

__all__ = ["STATE_VERSION", "plain_state"]

STATE_VERSION = 1


def plain_state(progress: Progress) -> dict[str, Any]:
    """Return a search as JSON."""
    graph = progress.graph
    nodes = {
        node.key: {
            "value": node.value,
            "best": node.best,
            "risk": progress.risks[node.key],
            "applied": [
                [step.move, step.target, step.choice]
                for step in progress.variants[node.key].applied
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
        "version": STATE_VERSION,
        "start": progress.start,
        "incumbent": progress.incumbent,
        "evaluations": progress.evaluations,
        "duplicates": progress.duplicates,
        "failures": dict(sorted(progress.failures.items())),
        "seconds": progress.seconds,
        "stopped": progress.stopped,
        "noise": progress.noise,
        "nodes": nodes,
        "failed": sorted(graph.failed),
        "open": list(progress.open),
        "twins": dict(sorted(graph.twins.items())),
        "beaten": sorted(progress.beaten),
    }
