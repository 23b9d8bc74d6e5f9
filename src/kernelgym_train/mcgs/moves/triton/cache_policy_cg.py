"""`cache_policy_cg`: sets which caches keep the data of a load or a store.

A load that has no policy is read past the first cache (``.cg``), or marked to leave the second
cache first or last. A store is marked as read by no one soon (``.cs``), or to leave first.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.knobs import appended
from kernelgym_train.mcgs.triton.module import TritonModule, calls_in

_LOADS = (
    'cache_modifier=".cg"',
    'eviction_policy="evict_first"',
    'eviction_policy="evict_last"',
)
_STORES = ('cache_modifier=".cs"', 'eviction_policy="evict_first"')


@triton_move("exact", phase=60, weight=0.3)
def cache_policy_cg(module: TritonModule) -> Iterator[ChangedText]:
    """Add a cache modifier or an eviction policy to a load or a store.

    Yields each policy of each load and store that has none.
    """
    for function in module.functions.values():
        for kind, policies in (("load", _LOADS), ("store", _STORES)):
            for number, call in enumerate(calls_in(function.node, kind)):
                if _has_policy(call):
                    continue
                for policy in policies:
                    text = module.spliced([appended(module, call, policy)])
                    yield ChangedText(
                        f"{kind} {number + 1} of {function.name}",
                        f"{policy.split(chr(34))[1]} at {kind} {number + 1}",
                        text,
                    )


def _has_policy(call: cst.Call) -> bool:
    """Return True if a load or store of Triton names a cache policy, perhaps by its position."""
    names = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    plain = sum(arg.keyword is None for arg in call.args)
    return bool(names & {"cache_modifier", "eviction_policy"}) or plain > 3
