"""The text space of observations and actions: any Unicode, at the cost of a length check.

`gymnasium.spaces.Text` names its characters one by one, which refuses the quotation marks that
compilers print, or costs milliseconds per check. `KernelText` is a `Text`, so Gymnasium's
batching works on it, that takes every string up to a length.

It is not made for shared memory (fixed-width buffers of a million characters): asking for that
raises `gymnasium.error.CustomSpaceError`; pass ``shared_memory=False`` to `AsyncVectorEnv`.
"""

from __future__ import annotations

import string
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory

__all__ = ["MAX_TEXT_CHARS", "KernelText"]

MAX_TEXT_CHARS = 1_000_000
"""Default bound on the length of a text, in characters."""

_SAMPLE_CHARS = 32


class KernelText(spaces.Text):
    """All strings of at most `max_length` characters.

    Args:
        max_length: Most characters.
        seed: Seed for `sample`.
    """

    def __init__(
        self, max_length: int = MAX_TEXT_CHARS, *, seed: int | np.random.Generator | None = None
    ) -> None:
        # The character set serves `sample` and flattening only.
        super().__init__(max_length, min_length=0, charset=string.ascii_letters, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random string, even where longer ones are allowed.

        Args:
            mask: A (length, character mask) pair, see `gymnasium.spaces.Text`.
            probability: A (length, character probabilities) pair.
        """
        if mask is not None or probability is not None:
            return str(super().sample(mask, probability))
        letters = self.np_random.integers(len(self.characters), size=_SAMPLE_CHARS)
        return "".join(self.characters[i] for i in letters)[: self.max_length]

    def __repr__(self) -> str:
        return f"KernelText({self.max_length})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, KernelText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((KernelText, self.max_length))


@create_shared_memory.register(KernelText)
def _refuse_shared_memory(space: KernelText, n: int = 1, ctx: Any = None) -> NoReturn:
    raise CustomSpaceError(
        f"{space} texts do not fit shared memory: pass shared_memory=False to AsyncVectorEnv, or "
        "use gymnasium.make_vec, which judges a whole batch in one process"
    )
