"""How large the demonstration on a GPU is: one plan in full, one to try it out, one for a CPU."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelgym_train.demo.model import ModelSize

TURNS = 3
ROWS = 192
"""Most samples of a step."""
RUNS = ("grpo", "control")
KINDS = ("full", "row")
"""Whether the second operand has the shape of the first, or of its last axis."""
OPERATORS = frozenset(
    {
        *("abs", "ceiling", "exp", "floor", "gelu", "log", "rsqrt", "sigmoid", "silu", "sin"),
        *("softsign", "sqrt", "square", "tanh"),
        *(f"{name}:{kind}" for name in ("add", "sub", "mul", "max", "min") for kind in KINDS),
        *("sum", "mean", "max", "min", "norm2", "softmax", "log_softmax"),
        *("center", "layer_norm", "rms_norm", "unit_norm"),
    }
)
"""Of all families; left out are those with constants of their own, and the longest."""
LARGER = ModelSize(
    hidden=448, layers=4, heads=7, key_value_heads=7, feed_forward=1280, context=1024
)
"""11 million weights in few layers: what a token costs is how many kernels are launched for it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every size and number that is fixed before running."""

    seed: int = 0
    listed: int = 4000
    """Single operators that are looked through."""
    chains: int = 8000
    """Chains that are looked through."""
    per_problem: int = 20
    """Answers of the warm start for each of its problems."""
    answer_tokens: int = 300
    """Most tokens of an answer that the warm start shows."""
    prompt_tokens: int = 160
    """Most tokens of a first question."""
    new_tokens: int = 312
    """Most tokens that are sampled."""
    model: ModelSize = LARGER
    warm_s: float = 100.0
    warm_rate: float = 1.2e-3
    warm_epochs: int = 6
    """More would teach the noise by heart."""
    batch_tokens: int = 16384
    problems_per_step: int = 8
    group_size: int = 8
    steps: int = 24
    control_steps: int = 10
    learning_rate: float = 7e-4
    kl: float = 0.15
    held_out: int = 24
    """Problems of each table."""
    unseen: int = 4
    samples: int = 8
    """Sampled episodes of each held-out problem."""
    timed: int = 64
    """Most right greedy answers that are timed at the end."""
    labels: int = 48
    """Kernels of the warm start whose label is held against the judge's verdict."""

    @property
    def rows(self) -> int:
        """Most samples of a step."""
        return self.problems_per_step * self.group_size * TURNS

    def changed(self, **values: object) -> Plan:
        """Return the plan with what is given and not None in its place."""
        return dataclasses.replace(self, **{k: v for k, v in values.items() if v is not None})


FULL = Plan()
SMOKE = FULL.changed(
    listed=600,
    chains=600,
    per_problem=2,
    warm_s=10.0,
    steps=2,
    held_out=4,
    unseen=0,
    samples=2,
    timed=3,
)
"""A first try, at the full size of model and step."""
TINY = FULL.changed(
    listed=300,
    chains=300,
    per_problem=2,
    model=ModelSize(
        hidden=64, layers=2, heads=2, key_value_heads=2, feed_forward=128, context=1024
    ),
    warm_s=15.0,
    warm_rate=3e-3,
    batch_tokens=4096,
    problems_per_step=2,
    group_size=4,
    steps=2,
    control_steps=1,
    held_out=2,
    unseen=1,
    samples=2,
    timed=2,
    labels=18,
)
"""The same on a CPU, to see that it runs; nothing is learned."""
