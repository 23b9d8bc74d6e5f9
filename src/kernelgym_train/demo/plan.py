"""Sizes of a demonstration: problems, corpus, model, fitting, learning, evaluation.

Contract: numbers that are fixed before anything is run; `CPU_PLAN` is that of `make demo`, from
which the benchmark's longer one is made, and `TINY_PLAN` runs through all stages in a minute or two
without learning anything.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernelgym.types import text_digest
from kernelgym_train.demo.model import SMALL, ModelSize
from kernelgym_train.demo.splits import PLAIN_FAMILIES, PLAIN_OPERATORS, Scope
from kernelgym_train.demo.warmstart import FitRule

PLAIN_SCOPE = Scope(
    chains=80_000,
    families=PLAIN_FAMILIES,
    operators=PLAIN_OPERATORS,
    operands=1,
    longest=2,
    longest_shown=3,
)
_DECIDE_THE_START = ("scope", "answers", "repairs", "vocabulary", "size", "fit", "held_out")
_WARM = FitRule(epochs=3, batch_tokens=1024)


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers that fix a demonstration: problems, model, fitting, learning and evaluation."""

    scope: Scope = PLAIN_SCOPE
    answers: int = 3400
    """Number of noisy answers that the warm start learns from; see
    `kernelgym_train.demo.corpus.evenly`."""
    repairs: int = 800
    """Number of warm-start problems for which second answers, which repair a first, are written."""
    vocabulary: int = 1000
    size: ModelSize = SMALL
    fit: FitRule = _WARM
    """Rule of the supervised fitting in the warm start."""
    settings: tuple[str, ...] = ()
    """Settings of the training, which replace those of `kernelgym_train.demo.settings`."""
    local_settings: tuple[str, ...] = ()
    """Further settings if the model is in this process."""
    backend: str = "trl"
    """Name of the backend that samples answers and trains the model."""
    steps: int = 22
    max_new_tokens: int = 75
    held_out: Mapping[str, int] = field(
        default_factory=lambda: {
            "compositions": 20,
            "shapes": 6,
            "composed": 2,
            "unseen_operator": 2,
        }
    )
    """Largest number of held-out problems by table; tables are fields of
    `kernelgym_train.demo.splits.Splits`."""
    samples: int = 8
    """Number of sampled episodes of each held-out problem."""
    batch: int = 128
    """Largest number of answers that a model in this process generates together."""

    @property
    def start_digest(self) -> str:
        """Return the digest of the settings that decide the problems and the warm-started model."""
        values = dataclasses.asdict(self)
        deciding = {name: values[name] for name in _DECIDE_THE_START}
        return text_digest(json.dumps(deciding, sort_keys=True, default=sorted))


def on_backend(plan: Plan, backend: str, settings: Iterable[str] = ()) -> Plan:
    """Return this plan with another training backend.

    Args:
        plan: Another plan; problems and warm-started model stay as they are.
        backend: The backend's name.
        settings: Settings of the run, which replace the plan's, such as a service's address.
    """
    return dataclasses.replace(
        plan,
        backend=backend,
        settings=(*plan.settings, *settings),
    )


CPU_PLAN = Plan()

TINY_PLAN = Plan(
    scope=dataclasses.replace(PLAIN_SCOPE, listed=300, chains=800),
    answers=500,
    repairs=200,
    vocabulary=1500,
    size=ModelSize(hidden=32, layers=1, heads=2, key_value_heads=2, feed_forward=32, context=1024),
    fit=FitRule(epochs=1, batch_tokens=2048),
    settings=("sampling.problems_per_step=2", "sampling.group_size=2"),
    local_settings=("optimiser.micro_batch=2",),
    steps=2,
    max_new_tokens=40,
    held_out={"compositions": 1, "shapes": 1, "unseen_operator": 1},
    samples=2,
)
