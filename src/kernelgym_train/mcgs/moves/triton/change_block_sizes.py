"""`change_block_sizes`: sets block sizes, warps and the limit of registers of a Triton kernel.

A block size is a ``tl.constexpr`` that is the length of a ``tl.arange``, or is named as a group of
blocks. It is set where the kernel has it: in ``triton.Config``, in the launch, in a name that is
assigned once, or as the parameter's default. If several configurations are tuned, one of them can
be chosen.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.knobs import TritonKnob, knobs_of
from kernelgym_train.mcgs.triton.loops import arange_names, tile_of
from kernelgym_train.mcgs.triton.module import JitFunction, TritonModule

_WARPS = (1, 2, 4, 8, 16)
_REGISTERS = (96, 128, 168)
_GROUPS = (1, 2, 4, 8, 16)
_TILES = (16, 32, 64, 128, 256)
_BLOCKS = tuple(2**power for power in range(6, 16))
_SMALL = (1, 2, 4, 8, 16, 32)


@triton_move("reassociates", phase=30, weight=2.0)
def change_block_sizes(module: TritonModule) -> Iterator[ChangedText]:
    """Set a block size, the number of warps of a block, or its limit of registers.

    Yields each other value of each number.
    """
    for knob in knobs_of(module):
        function = module.functions[knob.function]
        for value in choices(function, knob):
            if value != knob.value and (knob.literals or knob.calls):
                text = module.spliced(knob.edits(module, value))
                exact = knob.name in ("num_warps", "maxnreg") or "GROUP" in knob.name.upper()
                yield ChangedText(
                    f"{knob.name} of {knob.function}",
                    f"{knob.name}={value}",
                    text,
                    "exact" if exact else "reassociates",
                )
    for function in module.functions.values():
        if len(function.configs) > 1 and _in_one_list(module, function):
            for number in range(len(function.configs)):
                text = _only_config(module, function, number)
                place, choice = f"configurations of {function.name}", f"configuration {number + 1}"
                yield ChangedText(place, f"{choice} alone", text, "exact")


def choices(function: JitFunction, knob: TritonKnob) -> tuple[int, ...]:
    """Return the values that a number in a Triton kernel may have; only a block size has any."""
    if knob.name == "num_warps":
        return _WARPS
    if knob.name == "maxnreg":
        return _REGISTERS
    if "GROUP" in knob.name.upper():
        return _GROUPS
    if knob.name not in arange_names(function) or knob.value is None:
        return ()
    if knob.name in (tile_of(function) or ()):
        return _TILES
    return _BLOCKS if knob.value >= _BLOCKS[0] else tuple(dict.fromkeys((*_SMALL, *_TILES)))


def _in_one_list(module: TritonModule, function: JitFunction) -> bool:
    """Return True if a Triton function's configurations are elements of one list."""
    lists = {module.parent(module.parent(each)) for each in function.configs}
    return len(lists) == 1 and isinstance(lists.pop(), cst.List | cst.Tuple)


def _only_config(module: TritonModule, function: JitFunction, number: int) -> str:
    """Return the Triton module with one configuration instead of all that autotuning would try."""
    first, last = function.configs[0], function.configs[-1]
    span = (module.span(first)[0], module.span(last)[1])
    return module.spliced([(span, module.text(function.configs[number]))])
