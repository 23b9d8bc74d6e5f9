"""Rewards: the score of one turn, from parts weighted by a preset.

Contract, for every preset that can be built:

- an unparsable or rejected answer scores its penalty, at most 0, whatever else it achieved; an
  honest failure never scores below 0;
- a correct kernel never scores less than a wrong one;
- the score never falls as `speedup_low` rises (the low end of the interval, not the estimate);
- what cannot be scored by our fault has `Score.valid` False, and trainers drop the trajectory: an
  `unavailable` verdict, which scores 0.0, and under a preset that needs speed a correct kernel that
  was not timed. A speed that was withheld because it could not be confirmed is the kernel's own
  affair: it keeps its other parts.

Parts, each in [0, 1] before weighting unless said otherwise:

- ``format``: 1 for a clean answer, `RewardPreset.untidy` for one with defects;
- ``compile``: 1 if it compiled;
- ``trials``: share of the judged calls that agreed, of a kernel that is correct or wrong;
- ``correct``: 1 if correct;
- ``speed``: of a correct, timed kernel: `speedup_low`, capped, in one of four shapes (see
  `RewardPreset.shape`; ``linear`` and ``clipped`` are not confined to [0, 1]);
- ``improvement``: how far ``speed`` rose over the best earlier turn; never below 0;
- ``custom``: `Verdict.custom_share` of a correct kernel; 0 where it is not measured;
- ``length``: of a correct kernel, 1 if its source is short, falling to 0;
- ``thinking``: 1 if there is some, falling to 0 as it grows long;
- ``penalty``: what an unparsable or rejected answer scores; its only part.

Returns are `kernelgym.returns`' business.

The room may import the nouns and `languages`.
"""

from __future__ import annotations

from kernelgym.returns import discounted_returns
from kernelgym.rewards.parts import PARTS, score
from kernelgym.rewards.preset import SHAPES, RewardPreset, Weights
from kernelgym.rewards.schedule import RewardSchedule, reward_schedule
from kernelgym.rewards.shipped import REWARDS, check_speed, check_trials, reward_preset

__all__ = [
    "PARTS",
    "REWARDS",
    "SHAPES",
    "RewardPreset",
    "RewardSchedule",
    "Weights",
    "check_speed",
    "check_trials",
    "discounted_returns",
    "reward_preset",
    "reward_schedule",
    "score",
]
