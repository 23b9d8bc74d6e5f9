"""Fill large CPU tensors on all cores, with the bits that torch's own samplers give.

torch draws from its CPU generator on one core. Here a tensor is cut into segments, `mersenne` jumps
to the generator's state at the start of each, and torch's sampler fills all segments at the same
time. `fill` first tries on a small tensor whether a sampler allows that: each element must take the
same number of words, and two halves must equal the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from kernelgym.judge.inputs.kernelbench_bits.mersenne import Place, spread

__all__ = ["PARALLEL_ELEMENTS", "fill", "read_place", "write_place"]

PARALLEL_ELEMENTS = 1 << 24
"""For fewer elements, jumping takes longer than it saves."""

_SEGMENT_ELEMENTS = 1 << 22
_SEGMENTS_PER_CORE = 2
_MOST_THREADS = 32
_TRIED_ELEMENTS = 96  # it and its half are multiples of the blocks that samplers fill at once

Sampler = Callable[[torch.Tensor, torch.Generator], Any]


def read_place(generator: torch.Generator) -> Place:
    """Return a CPU generator's place; ValueError if its state has another layout."""
    return Place.of(bytes(generator.get_state().numpy()))


def write_place(generator: torch.Generator, place: Place) -> None:
    """Move a CPU generator to a place in its stream.

    The rest of the generator's state stays.
    """
    state = place.within(bytes(generator.get_state().numpy()))
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def fill(
    tensor: torch.Tensor,
    sampler: Sampler,
    generator: torch.Generator,
    *,
    threads: int | None = None,
    segment_elements: int = _SEGMENT_ELEMENTS,
) -> bool:
    """Fill a tensor, and move the generator, as the sampler would.

    Args:
        tensor: A contiguous tensor on the CPU.
        sampler: Fills a tensor from a generator, for example by `torch.Tensor.uniform_`.
        generator: A CPU generator.
        threads: Number of threads; by default one for each core that this process may use.
        segment_elements: Least size of a segment, a power of two.

    Returns:
        False if nothing was done: the result might differ, or would take no less time.
    """
    if threads is None:
        threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    elements = tensor.numel()
    while segment_elements * 2 * threads * _SEGMENTS_PER_CORE <= elements:
        segment_elements *= 2
    if threads < 2 or elements < 2 * segment_elements or not tensor.is_contiguous():
        return False
    words = _words_per_element(sampler, tensor.dtype, generator)
    if words not in (1, 2):
        return False
    flat = tensor.view(-1)
    cuts = list(range(0, elements, segment_elements))
    if elements - cuts[-1] < _TRIED_ELEMENTS:  # samplers fill short tensors in another way
        cuts.pop()
    parts = [flat[start:end] for start, end in zip(cuts, [*cuts[1:], elements], strict=True)]
    place, state = read_place(generator), generator.get_state()
    with ThreadPoolExecutor(threads) as pool:
        power = (segment_elements * words).bit_length() - 1
        starts = spread(place.words, power, len(parts), pool.map)

        def draw(index: int) -> torch.Generator:
            own = torch.Generator()
            own.set_state(state)
            write_place(own, Place(starts[index], place.given))
            sampler(parts[index], own)
            return own

        last = list(pool.map(draw, range(len(parts))))[-1]
    generator.set_state(last.get_state())
    return True


def _words_per_element(
    sampler: Sampler, dtype: torch.dtype, generator: torch.Generator
) -> int | None:
    """Return how many words an element takes, or None.

    None if the sampler's tensors cannot be cut.
    """
    whole, first, second = (
        torch.empty(size, dtype=dtype)
        for size in (_TRIED_ELEMENTS, _TRIED_ELEMENTS // 2, _TRIED_ELEMENTS // 2)
    )
    try:
        started = read_place(generator)
    except ValueError:
        return None
    one, other = torch.Generator(), torch.Generator()
    for own in (one, other):
        own.set_state(generator.get_state())
    sampler(whole, one)
    sampler(first, other)
    sampler(second, other)
    same_end = torch.equal(one.get_state(), other.get_state())
    if not same_end or not torch.equal(whole, torch.cat([first, second])):
        return None
    words, rest = divmod(_distance(started, read_place(one)), _TRIED_ELEMENTS)
    return None if rest else words


def _distance(start: Place, end: Place) -> int:
    """Return the distance of two places less than 624 words apart."""
    return (end.given - start.given) % 624
