"""The text space of observations and actions: any Unicode, one length check.

`gymnasium.spaces.Text` names its characters one by one, which refuses the quotation marks that
compilers print, or costs milliseconds per check. `KernelText` is a `Text`, so Gymnasium's
batching works on it, that takes every string up to a length. It has no form as an array: flattening
is refused.

Its batch can lie in shared memory, which `gymnasium.vector.AsyncVectorEnv` uses by default: each
environment has a slot of four bytes per character (UTF-8's longest) and eight for the length.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from ctypes import c_uint8
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any, NoReturn, overload

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import utils
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from kernelgym.errors import UsageError

MAX_TEXT_CHARS = 1_000_000
"""Default of the largest number of characters in an observation or an answer."""

_SAMPLE_CHARS = 32
_LENGTH_BYTES = 8


class KernelText(spaces.Text):
    """All strings of at most `max_length` characters.

    Args:
        max_length: Most characters.
        seed: Seed for `sample`.
    """

    def __init__(
        self, max_length: int = MAX_TEXT_CHARS, *, seed: int | np.random.Generator | None = None
    ) -> None:
        # The character set serves `sample` only.
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

    @property
    def is_np_flattenable(self) -> bool:
        """Whether a NumPy array can hold a text; it cannot."""
        return False

    def __repr__(self) -> str:
        return f"KernelText({self.max_length})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, KernelText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((KernelText, self.max_length))


def _refuse_to_flatten(space: KernelText, *_: Any) -> NoReturn:
    """Refuse what `gymnasium.spaces.utils` would do by one number for each possible character.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"{space} holds any Unicode text, which has no fixed number of entries: it cannot be "
        "flattened; leave FlattenObservation (or flatten=True) out, or make arrays of the text "
        "first, by TransformObservation"
    )


for _function in (utils.flatdim, utils.flatten, utils.flatten_space, utils.unflatten):
    _function.register(KernelText, _refuse_to_flatten)


class _SharedTexts(Sequence[str]):
    """Latest texts of all environments, read from shared memory; a deep copy is a tuple.

    Gymnasium reads the memory once, when it is made, and hands out deep copies after each step.
    An array shows what was written since; a tuple of texts made then would stay empty for ever.
    """

    def __init__(self, memory: SynchronizedArray[c_uint8], slot_bytes: int, n: int) -> None:
        self._memory, self._slot_bytes, self._n = memory, slot_bytes, n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._n)))
        start = range(self._n)[index] * self._slot_bytes
        shared = memoryview(self._memory.get_obj()).cast("B")
        first = start + _LENGTH_BYTES
        length = int.from_bytes(shared[start:first], "little")
        return bytes(shared[first : first + length]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, _: object) -> tuple[str, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return repr(tuple(self))


def _slot_bytes(space: KernelText) -> int:
    return _LENGTH_BYTES + 4 * space.max_length


@create_shared_memory.register(KernelText)
def _create_texts(space: KernelText, n: int = 1, ctx: Any = None) -> Any:
    if ctx is None:
        import multiprocessing as ctx
    return ctx.Array(c_uint8, n * _slot_bytes(space))


@read_from_shared_memory.register(KernelText)
def _read_texts(space: KernelText, memory: Any, n: int = 1) -> _SharedTexts:
    return _SharedTexts(memory, _slot_bytes(space), n)


@write_to_shared_memory.register(KernelText)
def _write_text(space: KernelText, index: int, value: str, memory: Any) -> None:
    """Write one environment's text into its slot.

    Raises:
        ValueError: If the text is longer than the space allows: it would run into the next slot.
    """
    if not space.contains(value):
        raise ValueError(f"a text of {len(value):,} characters does not fit {space}")
    data = value.encode("utf-8", "surrogatepass")
    start = index * _slot_bytes(space)
    first = start + _LENGTH_BYTES
    shared = memoryview(memory.get_obj()).cast("B")
    shared[start:first] = len(data).to_bytes(_LENGTH_BYTES, "little")
    shared[first : first + len(data)] = data
