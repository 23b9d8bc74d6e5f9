"""Derives a verdict's randomness from one secret, and seeds generators with it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import lru_cache

import torch

from kernelgym.rulesets import Ruleset


@dataclass(frozen=True, slots=True)
class Seeds:
    """All randomness of one verdict, derived from one secret or KernelBench's 42."""

    secret: str
    """Secret of the verdict in hexadecimal; empty for KernelBench's public seeds."""

    def derive(self, purpose: str, index: int = 0) -> int:
        """Return 63 bits for one purpose; they reveal nothing about another purpose's."""
        text = f"{self.secret}:{purpose}:{index}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1

    def init(self) -> int:
        """Return the seed with which reference and candidate both construct their models."""
        return self.derive("init") if self.secret else 42

    def trial(self, index: int) -> int:
        """Return the seed from which the inputs of one judged call are drawn."""
        return self.derive("trial", index) if self.secret else _kernelbench_trial_seeds()[index]

    def forward(self, index: int) -> int:
        """Return the seed set before one forward call, of the reference and of the candidate.

        Layers that draw random numbers (dropout) then draw the same ones on both sides.
        """
        return self.derive("forward", index) if self.secret else self.trial(index)

    def calls(self, ruleset: Ruleset) -> int:
        """Return the number of judged calls with ordinary inputs."""
        span = ruleset.max_calls - ruleset.min_calls + 1
        return ruleset.min_calls + self.derive("calls") % span


@lru_cache(maxsize=1)
def _kernelbench_trial_seeds() -> list[int]:
    """Return the trial seeds that KernelBench derives from its seed 42."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        return [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(64)]


def seed_all(seed: int, device: torch.device | None = None) -> None:
    """Seed torch's CPU generator, Python's, and the device's own."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if device is not None and device.type == "cuda":
        _generator(device).manual_seed(seed)


def random_state(device: torch.device) -> bytes:
    """Return the state of torch's generators, on CPU and device."""
    states = [torch.default_generator.get_state()]
    if device.type == "cuda":
        states.append(_generator(device).get_state())
    return b"".join(bytes(state.numpy()) for state in states)


def _generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
