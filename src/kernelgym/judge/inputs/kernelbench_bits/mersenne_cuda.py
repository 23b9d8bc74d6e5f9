"""Draw on a CUDA device what `torch.rand` draws on the CPU, bit for bit.

``torch.rand`` in fp32 takes 24 bits of each of the stream's words, times 2^-24. The stream is cut
into segments of 2^20 words. The device finds the 624 words at which each segment begins by doubling
(one jump for every segment, half of all in the last step). Then one block of threads draws each
segment. 6.4 GB take some milliseconds, against 6.4 s on the CPU.

`agrees` checks once in a process whether this torch and this device give the CPU's bits; callers
use no numbers drawn here unless they do.
"""

from __future__ import annotations

import functools
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
"""Logarithm of a segment's length."""

_JUMP_THREADS = 640
_DRAW_THREADS = 224
_KEPT_RUNS = 32
# The words at which segments begin, and the state at the end, by the generator's place. They take
# a thousandth of the memory of the numbers drawn. Under public seeds every kernel of a problem
# draws the same numbers, so without these each draw would find the segments again.
_runs: dict[tuple[bytes, int, int, torch.device], tuple[torch.Tensor, torch.Tensor, Any]] = {}
_TRIED_ELEMENTS = (5 << (SEGMENT_POWER - 1)) + 1234

# One block for each new place: `states[have + block]` lies one jump behind `states[block]`. A
# thread adds up one of its 624 words, over the sequence's words at which the polynomial has a bit.
JUMP_SOURCE = r"""extern "C" __global__ void jump(
    unsigned *states, const unsigned *bits, int have) {
    const unsigned t = threadIdx.x;
    const unsigned n = 624, m = 397;
    __shared__ unsigned x[2 * 624];
    auto next = [&](unsigned k) {
        unsigned y = (x[k] & 0x80000000u) | (x[k + 1] & 0x7fffffffu);
        x[k + n] = x[k + m] ^ (y >> 1) ^ ((y & 1u) * 0x9908b0dfu);
    };
    unsigned sum = 0;
    if (t < n) x[t] = states[(size_t)blockIdx.x * n + t];
    for (int chunk = 0; chunk < @CHUNKS@; ++chunk) {
        __syncthreads();
        for (unsigned start = 0; start < n; start += n - m) {
            unsigned k = start + t;
            if (t < n - m && k < n) next(k);
            __syncthreads();
        }
        if (t < n) {
            for (int word = 0; word < @CHUNK_WORDS@; ++word) {
                unsigned left = bits[chunk * @CHUNK_WORDS@ + word];
                while (left) {
                    sum ^= x[word * 32 + __ffs(left) - 1 + t];
                    left &= left - 1;
                }
            }
        }
        __syncthreads();
        if (t < n) x[t] = x[t + n];
    }
    if (t < n) states[((size_t)have + blockIdx.x) * n + t] = sum;
}
""".replace("@CHUNKS@", str(CHUNKS)).replace("@CHUNK_WORDS@", str(CHUNK_WORDS))

# One block for each segment. `plan` holds: how many numbers are wanted, how many of the first 624
# words have been given out, the length of a segment, and where the 624 words start that the
# generator ends with; the block that produces them writes them to `last`.
DRAW_SOURCE = r"""extern "C" __global__ void draw(
    float *out, const unsigned *states, unsigned *last, const long long *plan) {
    const unsigned n = 624, m = 397, mask = 1023;
    const unsigned t = threadIdx.x, width = blockDim.x;
    const long long count = plan[0], given = plan[1], segment = plan[2];
    const long long begin = blockIdx.x * segment;
    const bool is_last = blockIdx.x + 1 == gridDim.x;
    long long end = begin + segment < count ? begin + segment : count;
    const long long last_at = plan[3] - begin;
    const bool keeps = last_at >= 0 && (last_at < segment || is_last);
    long long stop = end - begin + given;
    if (keeps && last_at + n > stop) stop = last_at + n;
    __shared__ unsigned x[1024];
    auto give = [&](long long place, unsigned word) {
        if (keeps && place >= last_at && place < last_at + n) last[place - last_at] = word;
        const long long at = begin + place - given;
        if (place < given || at >= end) return;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c5680u;
        word ^= (word << 15) & 0xefc60000u;
        word ^= word >> 18;
        out[at] = (float)(word & 0xffffffu) * 5.9604644775390625e-8f;
    };
    for (unsigned k = t; k < n; k += width) {
        const unsigned word = states[(size_t)blockIdx.x * n + k];
        x[k] = word;
        give(k, word);
    }
    __syncthreads();
    for (long long start = 0; start + n < stop; start += width) {
        const unsigned k = (unsigned)start + t;
        const unsigned y = (x[k & mask] & 0x80000000u) | (x[(k + 1) & mask] & 0x7fffffffu);
        const unsigned word = x[(k + m) & mask] ^ (y >> 1) ^ ((y & 1u) * 0x9908b0dfu);
        x[(k + n) & mask] = word;
        give(start + t + n, word);
        __syncthreads();
    }
}
"""


def read_place(generator: torch.Generator) -> GeneratorPlace:
    """Return a CPU generator's place; ValueError if its state has another layout."""
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
        count: How many numbers.
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
    """Return the words at segments' starts, and the drawing kernel's plan."""
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
