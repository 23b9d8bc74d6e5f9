"""`enable_async_pipeline`: starts the loads of later loop iterations early.

Triton pipelines loops with ``tl.dot`` by the launch option ``num_stages``, and other loops by an
argument of ``tl.range``. A loop without loads has nothing to begin early.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.knobs import knobs_of
from kernelgym_train.mcgs.triton.loops import loops_of
from kernelgym_train.mcgs.triton.module import TritonModule, calls_in

_STAGES = (1, 2, 3, 4, 5)
_OWN_STAGES = (2, 3, 4, 6)


@triton_move("exact", phase=31, weight=1.0)
def enable_async_pipeline(module: TritonModule) -> Iterator[ChangedText]:
    """Begin the loads of later iterations of a loop before they are needed.

    Yields numbers of stages of launches, then of single loops.
    """
    loading = {
        function.name: [
            loop
            for loop in loops_of(module, function)
            if not loop.is_static and any(calls_in(each, "load") for each in loop.body)
        ]
        for function in module.functions.values()
    }
    for knob in knobs_of(module):
        function = module.functions[knob.function]
        if knob.name != "num_stages" or not calls_in(function.node, "dot"):
            continue
        for stages in _STAGES:
            if stages != knob.value and (knob.literals or knob.calls):
                text = module.spliced(knob.edits(module, stages))
                yield ChangedText(f"num_stages of {knob.function}", f"num_stages={stages}", text)
    for name, loops in loading.items():
        for loop in loops:
            if loop.options or calls_in(loop.node, "dot"):
                continue
            for stages in _OWN_STAGES:
                head = f"tl.range({loop.start}, {loop.end}, {loop.step}, num_stages={stages})"
                text = module.edited([(loop.call, head)])
                yield ChangedText(
                    f"loop {loop.number + 1} of {name}",
                    f"loop {loop.number + 1} in {stages} stages",
                    text,
                )
