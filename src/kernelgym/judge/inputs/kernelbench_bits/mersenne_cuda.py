"""Draws on a CUDA device the numbers that `torch.rand` draws on the CPU, bit for bit.

``torch.rand`` in fp32 takes 24 bits of each of the stream's words, times 2^-24. The stream is cut
into segments of 2^20 words. The device finds the 624 words at which each segment begins by doubling
(one jump for every segment, half of all in the last step). Then one block of threads draws each
segment. 6.4 GB take some milliseconds, against 6.4 s on the CPU.

`agrees` checks once in a process whether this torch and this device give the CPU's bits; callers
use no numbers drawn here unless they do.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from kernelgym.judge.inputs.kernelbench_bits.mersenne import (
    CHUNK_WORDS,
    CHUNKS,
    WORDS,
    GeneratorPlace,
    bit_chunks,
)

SEGMENT_POWER = 20
"""Logarithm to base 2 of a segment's length in words."""

_JUMP_THREADS = 640
_DRAW_THREADS = 224
_KEPT_RUNS = 32
# The words at which segments begin, and the state at the end, by the generator's place. They take
# a thousandth of the memory of the numbers drawn. Under public seeds every kernel of a problem
# draws the same numbers, so without these each draw would find the segments again.
_runs: dict[tuple[bytes, int, int, torch.device], tuple[torch.Tensor, torch.Tensor, Any]] = {}
_TRIED_ELEMENTS = (5 << (SEGMENT_POWER - 1)) + 1234

JUMP_SOURCE = (
    Path(__file__)
    .with_name("mersenne_jump.cu")
    .read_text("utf-8")
    .replace("@CHUNKS@", str(CHUNKS))
    .replace("@CHUNK_WORDS@", str(CHUNK_WORDS))
)
DRAW_SOURCE = Path(__file__).with_name("mersenne_draw.cu").read_text("utf-8")


def read_place(generator: torch.Generator) -> GeneratorPlace:
    """Return a CPU generator's place in its stream."""
    return GeneratorPlace.of(bytes(generator.get_state().numpy()))


def write_place(generator: torch.Generator, place: GeneratorPlace) -> None:
    """Move a CPU generator to a place in its stream.

    The rest of the generator's state stays.
    """
    state = place.within(bytes(generator.get_state().numpy()))
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def draw_uniform(
    count: int, place: GeneratorPlace, device: torch.device
) -> tuple[torch.Tensor, GeneratorPlace]:
    """Return fp32 numbers from [0, 1), and the generator's place after them.

    Args:
        count: Number of numbers to draw.
        place: The CPU generator's place.
        device: A CUDA device, on which the numbers will lie.
    """
    segment = 1 << SEGMENT_POWER
    segments = -(-count // segment)
    _, given = place.after(count)
    with torch.cuda.device(device):
        run = _runs.get((place.words.tobytes(), place.given, count, device))
        states, plan, end = run or (*_begin(count, place, device), None)
        out = torch.empty(count, dtype=torch.float32, device=device)
        last = torch.empty(WORDS, dtype=torch.int32, device=device)
        arguments = [out, states, last, plan]
        _kernel("draw", device)((segments, 1, 1), (_DRAW_THREADS, 1, 1), arguments)
        if end is None:
            end = last.cpu().numpy().view("<u4").copy()
            if len(_runs) >= _KEPT_RUNS:
                del _runs[next(iter(_runs))]
            _runs[place.words.tobytes(), place.given, count, device] = states, plan, end
        return out, GeneratorPlace(end.copy(), given)


def _begin(
    count: int, place: GeneratorPlace, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the words at which segments begin, and the drawing kernel's launch plan."""
    segment = 1 << SEGMENT_POWER
    segments = -(-count // segment)
    behind, _ = place.after(count)
    states = torch.empty(segments, WORDS, dtype=torch.int32, device=device)
    states[0].copy_(torch.from_numpy(place.words.view("<i4").copy()))
    have = 1
    while have < segments:
        new = min(have, segments - have)
        bits = _bits(SEGMENT_POWER + have.bit_length() - 1, device)
        _kernel("jump", device)((new, 1, 1), (_JUMP_THREADS, 1, 1), [states, bits, have])
        have += new
    return states, torch.tensor([count, place.given, segment, behind], device=device)


@functools.lru_cache(maxsize=16)
def agrees(device: torch.device) -> bool:
    """Return True if this device draws the CPU's numbers.

    The check runs once in a process.
    """
    generator = torch.Generator().manual_seed(1998)
    torch.rand(1000, generator=generator)
    try:
        drawn, end = draw_uniform(_TRIED_ELEMENTS, read_place(generator), device)
    except (RuntimeError, AttributeError, OSError, ValueError):
        return False  # NVRTC is missing, torch has another interface to it, or another generator
    same = torch.equal(drawn.cpu(), torch.rand(_TRIED_ELEMENTS, generator=generator))
    there = read_place(generator)
    return same and there.given == end.given and bool((there.words == end.words).all())


@functools.lru_cache(maxsize=32)
def _kernel(name: str, device: torch.device) -> Any:
    del device  # a cache key only: the kernel is loaded into the current device's context
    source = {"jump": JUMP_SOURCE, "draw": DRAW_SOURCE}[name]
    return torch.cuda._compile_kernel(source, name)


@functools.lru_cache(maxsize=64)
def _bits(power: int, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(bit_chunks(power).view("<i4").copy()).to(device)
