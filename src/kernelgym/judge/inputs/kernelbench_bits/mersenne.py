"""Jumps to any place in the stream of torch's CPU generator (MT19937) without drawing up to it.

A generator's state is 624 words, the last ones of a sequence, and how many of them it has given
out. The sequence obeys a linear recurrence over bits. So the words ``n`` places further on are sums
(exclusive or) of words near the state: those at which the polynomial ``t^n``, modulo the
recurrence's characteristic polynomial, has a coefficient. Such a jump takes some milliseconds
whatever ``n`` is, and computing the polynomial takes as long, so nothing is kept on disk.

Pure: NumPy only.

Not here: jumping and drawing, which `mersenne_cuda` does on the device.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORDS = 624
# A polynomial's bits come in 32 chunks of 624 bits; each chunk starts a new 32-bit word.
CHUNKS, CHUNK_WORDS = 32, 20
_MIDDLE = 397
_DEGREE = 19937
_UPPER_BITS, _LOWER_BITS = 1, 31
_TWIST = 0x9908B0DF

_STATE_BYTES = 5056
_LEFT, _NEXT, _ARRAY = 8, 16, 24

Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class GeneratorPlace:
    """Place in a Mersenne Twister's stream: its 624 words, and how many it has given out."""

    words: Words
    """624 consecutive words. Of the first one, only the top bit affects the words that follow."""
    given: int
    """Number of these words that the generator has given out, from 1 to 624."""

    @classmethod
    def of(cls, state: bytes) -> GeneratorPlace:
        """Return the place in a generator's state from `torch.Generator.get_state`.

        Raises:
            ValueError: If the state has another layout.
        """
        if len(state) != _STATE_BYTES:
            raise ValueError(f"a CPU generator's state has {_STATE_BYTES} bytes, not {len(state)}")
        left = int.from_bytes(state[_LEFT : _LEFT + 4], "little")
        given = int.from_bytes(state[_NEXT : _NEXT + 8], "little")
        # All words are given out; or the generator has just been seeded and has given out none. In
        # both cases the next word starts a new run of 624.
        if left == 1:
            given = WORDS
        words = np.frombuffer(state, np.uint64, WORDS, _ARRAY)
        if left + given != WORDS + 1 or int(words.max()) >> 32:
            raise ValueError("this is not a state of an MT19937 generator")
        return cls(words.astype(np.uint32), given)

    def within(self, state: bytes) -> bytes:
        """Return a generator's state, moved to this place in its stream."""
        return b"".join(
            (
                state[:_LEFT],
                (WORDS + 1 - self.given).to_bytes(4, "little"),
                state[_LEFT + 4 : _NEXT],
                self.given.to_bytes(8, "little"),
                self.words.astype(np.uint64).tobytes(),
                state[_ARRAY + 8 * WORDS :],
            )
        )

    def after(self, count: int) -> tuple[int, int]:
        """Return the place of a generator after it has given out `count` more words.

        Returns:
            How far its 624 words lie behind these ones in the stream, and how many of them it has
            given out.
        """
        end = self.given + count
        behind = (end - 1) // WORDS * WORDS
        return behind, end - behind


@functools.lru_cache(maxsize=64)
def bit_chunks(power: int) -> NDArray[np.uint32]:
    """Return the polynomial of a jump by ``2**power`` words, as `CHUNKS` x `CHUNK_WORDS` words.

    The jump goes ``2**power`` places further.
    """
    bits = np.zeros((CHUNKS, CHUNK_WORDS * 32), np.uint8)
    exponents = _exponents(power)
    bits[exponents // WORDS, exponents % WORDS] = 1
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)


@functools.lru_cache(maxsize=64)
def _exponents(power: int) -> NDArray[np.intp]:
    digits = bin(_power_of_t(power))[:1:-1]
    return np.flatnonzero(np.frombuffer(digits.encode(), np.uint8) == ord("1"))


@functools.lru_cache(maxsize=64)
def _power_of_t(power: int) -> int:
    """Return ``t^(2**power)`` modulo the characteristic polynomial, as bits."""
    if not power:
        return 2
    # The square of a polynomial over bits has a zero between every two coefficients.
    square = int(bin(_power_of_t(power - 1))[2:], 4)
    while (high := square >> _DEGREE) != 0:
        square &= (1 << _DEGREE) - 1
        for exponent in _lower_exponents():
            square ^= high << exponent
    return square


@functools.cache
def _lower_exponents() -> tuple[int, ...]:
    """Return the exponents of the characteristic polynomial, without the highest one.

    The polynomial is the one that Matsumoto and Nishimura (1998, appendix A) give for the
    generator's parameters.
    """
    long, short = [1], [1]
    for _ in range(_UPPER_BITS):
        long.append(_times(long[-1], (1 << WORDS) ^ (1 << _MIDDLE)))
    for _ in range(_LOWER_BITS):
        short.append(_times(short[-1], (1 << WORDS - 1) ^ (1 << _MIDDLE - 1)))
    total = _times(long[_UPPER_BITS], short[_LOWER_BITS])
    for bit in range(_LOWER_BITS):
        if _TWIST >> bit & 1:
            total ^= _times(long[_UPPER_BITS], short[_LOWER_BITS - 1 - bit])
    for bit in range(_UPPER_BITS):
        if _TWIST >> _LOWER_BITS + bit & 1:
            total ^= long[_UPPER_BITS - 1 - bit]
    return tuple(exponent for exponent in range(_DEGREE) if total >> exponent & 1)


def _times(a: int, b: int) -> int:
    product = 0
    for shift in range(b.bit_length()):
        if b >> shift & 1:
            product ^= a << shift
    return product
