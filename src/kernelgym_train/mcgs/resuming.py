"""`take_past`: takes in the events that a search's log holds when the search is resumed.

Contract: a log of another context, or one whose events do not fit each other, is a `UsageError`.
The key of each state, which names a folder, is the one that its variant has. Numbers that are
computed with later are within bounds, so that no sum, product or exp() of them overflows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym_train.mcgs.events import SearchEvent
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.variant import state_key

_MOST = 1e30  # of any number, such as a seed or a profiler's counter
_LOG = -50.0, 50.0  # ln of a speedup: exp(50) is 5e21, and exp(710) overflows
_AMOUNT = 0.0, 1e9  # s, ms, tokens, US dollars, verdicts, and ratios of times
_BOUNDS = {
    **dict.fromkeys(("value", "logs", "beside"), _LOG),
    **dict.fromkeys(("seconds", "took_s", "build_s", "wall_s", "shown_wall_s", "round_s"), _AMOUNT),
    **dict.fromkeys(("tokens", "usd", "worst_tokens", "worst_usd", "verdicts", "busy"), _AMOUNT),
    **dict.fromkeys(("ms", "ratio", "low", "high", "floor_share"), _AMOUNT),
    "speedup": (1e-9, 1e9),  # its logarithm is taken; or 0, if there is no time
    "predicted_gain": (-0.999999, 1e9),  # the logarithm of 1 + gain is taken
}
_MISSING: Mapping[str, tuple[object, ...]] = {
    "value": (None,),
    "usd": (None,),
    "predicted_gain": (None,),
    "speedup": (0.0,),
}
"""Values outside its bounds that a field may have, where there is no number."""


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
            _check_numbers(event)
            state.take(event)
        fits = all(state_key(variant) == key for key, variant in state.variants.items())
        fits = fits and max(state.proof) <= _MOST
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


def _check_numbers(event: SearchEvent) -> None:
    """Refuse an event with a number that no search measures, such as ln of a speedup of 1e6.

    Raises:
        ValueError: If there is one, or a field that must be a number is none.
    """
    answer = event.fields.get("answer") or {}
    result = {"speedup": event.fields["result"]["speedup"]} if event.name == "finished" else {}
    for fields in ({"seconds": event.seconds}, event.fields, answer, result):
        for name, value in fields.items():
            least, most = _BOUNDS.get(name, (-_MOST, _MOST))
            for leaf in _leaves(value):
                is_number = isinstance(leaf, int | float)
                fits = least <= leaf <= most if is_number else name not in _BOUNDS  # NaN does not
                if not fits and leaf not in _MISSING.get(name, ()):
                    raise ValueError(f"{name} is {leaf!r:.100}")


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in lists and objects, however deep."""
    rest = [value]
    while rest:
        match rest.pop():
            case dict() as found:
                rest += found.values()
            case list() as found:
                rest += found
            case leaf:
                yield leaf
