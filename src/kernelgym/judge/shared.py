"""Shares one evaluator among all callers in a process with the same device and ruleset."""

from __future__ import annotations

import os
import threading
from typing import Any

from kernelgym.judge.local import LocalEvaluator
from kernelgym.judging_memory import memory_budget
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset


class _Shared(LocalEvaluator):
    """An evaluator that closes when its last user closes it."""

    users = 0
    key: tuple[Any, ...] = ()

    def close(self) -> None:
        with _shared_lock:
            self.users -= 1
            if self.users > 0:
                return
            if _shared.get(self.key) is self:
                del _shared[self.key]
        super().close()


_shared: dict[tuple[Any, ...], _Shared] = {}
_shared_lock = threading.Lock()


def shared_evaluator(
    device: str = "cpu",
    ruleset: str | Ruleset = "strict",
    workers: int = 1,
    timing: bool = True,
    memory_bytes: float | None = None,
) -> LocalEvaluator:
    """Return this process's evaluator for these arguments; start one if needed.

    Without this, 64 environments would start 64 pools of workers. Every call counts as a user,
    and every user must call `close` once.
    """
    rules = find_ruleset(ruleset)
    budget = memory_budget(memory_bytes, device)
    key = (os.getpid(), device, rules.digest, rules.name, workers, timing, budget)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = _Shared(device, rules, workers, timing, memory_bytes=budget)
            _shared[key].key = key
        _shared[key].users += 1
        return _shared[key]
