"""`take_past`: takes in the events that a search's log holds when the search is resumed.

Contract: a log of another context, or one whose events do not fit each other, is a `UsageError`.
The key of each state, which names a folder, is the one that its variant has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelgym import UsageError
from kernelgym_train.mcgs.events import SearchEvent
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.variant import state_key


def take_past(
    state: SearchState, past: Sequence[SearchEvent], context: Mapping[str, str], path: Path
) -> None:
    """Take the events of a log into the state of a search.

    Args:
        state: State without events.
        past: The events; at least one.
        context: Everything that times depend on now.
        path: Path of the log, for messages.

    Raises:
        UsageError: If a part of the context has changed, or the events do not fit each other.
    """
    try:
        _check_context(dict(past[0].fields["context"]), context)
        for event in past:
            state.take(event)
        fits = all(state_key(variant) == key for key, variant in state.variants.items())
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        fits = False
    if not fits:
        raise UsageError(
            f"the events in {str(path)!r} do not fit each other; remove the file to begin anew"
        )


def _check_context(there: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse to resume a search in a context whose times cannot be compared with the recorded ones.

    Raises:
        UsageError: If a part of the context has changed.
    """
    for part, value in now.items():
        if there.get(part) != value:
            raise UsageError(
                f"the search was begun with another {part} ({there.get(part)!r:.200}, now "
                f"{value!r:.200}); the times cannot be compared: give another outdir"
            )
